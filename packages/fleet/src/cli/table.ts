/** Tables as text: columns as wide as their widest cell. */

import { printable, type Terminal } from "./terminal.ts";

export function printTable(terminal: Terminal, heads: readonly string[], given: readonly (readonly string[])[]): void {
  const rows = given.map((row) => row.map(printable));
  const widths = heads.map((head, column) => Math.max(head.length, ...rows.map((row) => row[column]?.length ?? 0)));
  for (const row of [heads, ...rows]) {
    const line = row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ");
    terminal.out(`${line.trimEnd()}\n`);
  }
}
