/** Source text with colours; more than `COLOURED_MAX` characters stay plain, so that the page stays quick. */

import { useMemo } from "react";
import { highlight, languageOf } from "./highlight.ts";

const COLOURED_MAX = 200_000;
/** Pieces with a colour are elements. More of them make scrolling slow. */
const PIECES_MAX = 20_000;

export function Code({ name, text }: { readonly name: string; readonly text: string }) {
  const pieces = useMemo(() => {
    const language = text.length > COLOURED_MAX ? null : languageOf(name);
    const all = language === null ? [] : highlight(text, language);
    return all.length > PIECES_MAX ? [] : all;
  }, [name, text]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard
    <pre tabIndex={0}>
      {pieces.length === 0
        ? text
        : pieces.map(({ kind, text: piece }, at) =>
            kind === "plain" ? (
              piece
            ) : (
              // biome-ignore lint/suspicious/noArrayIndexKey: a piece is its place in the text
              <span key={at} className={`hl-${kind}`}>
                {piece}
              </span>
            ),
          )}
    </pre>
  );
}
