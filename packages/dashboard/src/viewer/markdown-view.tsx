/** A Markdown file as elements. Links open elsewhere and say where they lead; nothing is loaded. */

import { type ReactNode, useMemo } from "react";
import { texts } from "../texts.ts";
import { Code } from "./code.tsx";
import { type Block, type Inline, parseMarkdown } from "./markdown.ts";

/** Blocks beyond it are left out, and said so: a page of them would be slow. */
const BLOCKS_MAX = 3_000;

export function MarkdownView({ name, text }: { readonly name: string; readonly text: string }) {
  const blocks = useMemo(() => parseMarkdown(text), [text]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard
    <section className="markdown scroll tall" tabIndex={0} aria-label={texts.files.renderedOf(name)}>
      {blocksOf(blocks.slice(0, BLOCKS_MAX))}
      {blocks.length > BLOCKS_MAX && <p className="soft">{texts.files.renderedCut}</p>}
    </section>
  );
}

function blocksOf(blocks: readonly Block[]): ReactNode {
  // biome-ignore lint/suspicious/noArrayIndexKey: a block is its place in the document
  return blocks.map((block, at) => <BlockView key={at} block={block} />);
}

function BlockView({ block }: { readonly block: Block }): ReactNode {
  switch (block.kind) {
    case "heading": {
      // The page has its own first and second level.
      const Heading = (["h3", "h3", "h4", "h5", "h6", "h6"] as const)[block.level - 1] ?? "h6";
      return <Heading className={`level-${block.level}`}>{inlinesOf(block.inner)}</Heading>;
    }
    case "paragraph":
      return <p>{inlinesOf(block.inner)}</p>;
    case "code":
      return <Code name={`x.${block.language}`} text={block.text} />;
    case "quote":
      return <blockquote>{blocksOf(block.blocks)}</blockquote>;
    case "rule":
      return <hr />;
    case "list": {
      // biome-ignore lint/suspicious/noArrayIndexKey: an item is its place in the list
      const items = block.items.map((item, at) => <li key={at}>{itemOf(item)}</li>);
      return block.start === null ? <ul>{items}</ul> : <ol start={block.start}>{items}</ol>;
    }
    default:
      return (
        <table className="plain grid">
          <thead>
            <tr>
              {block.header.map((cell, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place
                <th key={at}>{inlinesOf(cell)}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {block.rows.map((row, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a row is its place
              <tr key={at}>
                {row.map((cell, column) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: a cell is its place
                  <td key={column}>{inlinesOf(cell)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      );
  }
}

/** An item of one paragraph has no space around it. */
function itemOf(blocks: readonly Block[]): ReactNode {
  const [first, ...rest] = blocks;
  if (first?.kind !== "paragraph") return blocksOf(blocks);
  return (
    <>
      {inlinesOf(first.inner)}
      {blocksOf(rest)}
    </>
  );
}

function inlinesOf(inlines: readonly Inline[]): ReactNode {
  return inlines.map((inline, at) => {
    if (inline.kind === "text") return inline.text;
    const key = String(at);
    if (inline.kind === "code") return <code key={key}>{inline.text}</code>;
    const inner = inlinesOf(inline.inner);
    if (inline.kind === "link")
      return (
        <a key={key} href={inline.href} title={inline.href} target="_blank" rel="noopener noreferrer">
          {inner}
        </a>
      );
    const Element = inline.kind;
    return <Element key={key}>{inner}</Element>;
  });
}
