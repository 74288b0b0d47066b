/** A file of rows as a table. */

import { useMemo } from "react";
import { Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";
import { parseDelimited } from "./delimited.ts";

export function DelimitedTable({ name, text }: { readonly name: string; readonly text: string }) {
  const { header, rows, isCut } = useMemo(() => parseDelimited(text, /\.tsv$/i.test(name)), [name, text]);
  return (
    <>
      {isCut && <Notice kind="warn">{texts.files.tableCut(rows.length)}</Notice>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard */}
      <section className="scroll tall" tabIndex={0} aria-label={texts.files.tableOf(name)}>
        <table className="plain grid">
          <thead>
            <tr>
              {header.map((cell, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place
                <th key={at}>{cell}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a row is its place
              <tr key={at}>
                {row.map((cell, column) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: a cell is its place
                  <td key={column}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}
