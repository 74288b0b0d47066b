/** Tables as text, separated by commas, semicolons or tabs (RFC 4180). Linear, and no more rows than are shown. */

export interface Table {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** There are more rows or columns than these. */
  readonly isCut: boolean;
}

const ROWS_MAX = 2_000;
const COLUMNS_MAX = 100;
const CELL_MAX = 1_000;

export function parseDelimited(text: string, isTabs: boolean): Table {
  const separator = isTabs ? "\t" : separatorOf(text);
  const rows: string[][] = [];
  let row: string[] = [];
  let isCut = false;
  let at = text.startsWith("\ufeff") ? 1 : 0;
  const add = (cell: string) => {
    if (row.length < COLUMNS_MAX) row.push(cell.length > CELL_MAX ? `${cell.slice(0, CELL_MAX)}…` : cell);
    else isCut = true;
  };
  while (at < text.length) {
    if (rows.length > ROWS_MAX) {
      isCut = true;
      break;
    }
    const { cell, end } = text[at] === '"' ? quotedAt(text, at, separator) : plainAt(text, at, separator);
    add(cell);
    if (text[end] === separator) {
      at = end + 1;
      // A separator at the very end begins one more cell.
      if (at < text.length) continue;
      add("");
    }
    rows.push(row);
    row = [];
    at = text.startsWith("\r\n", end) ? end + 2 : Math.max(at, end + 1);
  }
  const [header = [], ...body] = rows;
  return { header, rows: body, isCut };
}

function plainAt(text: string, at: number, separator: string) {
  let end = at;
  while (end < text.length && text[end] !== separator && text[end] !== "\n" && text[end] !== "\r") end += 1;
  return { cell: text.slice(at, end), end };
}

function quotedAt(text: string, at: number, separator: string) {
  const parts: string[] = [];
  let from = at + 1;
  let end = text.indexOf('"', from);
  while (end >= 0 && text[end + 1] === '"') {
    parts.push(text.slice(from, end + 1));
    from = end + 2;
    end = text.indexOf('"', from);
  }
  if (end < 0) return { cell: parts.join("") + text.slice(from), end: text.length };
  // What stands behind the closing quote belongs to the cell too.
  const rest = plainAt(text, end + 1, separator);
  return { cell: parts.join("") + text.slice(from, end) + rest.cell, end: rest.end };
}

/** The one that the first line has most. */
function separatorOf(text: string): string {
  const end = text.indexOf("\n");
  const line = text.slice(0, end < 0 ? 10_000 : Math.min(end, 10_000));
  const count = (separator: string) => line.split(separator).length;
  return [",", ";", "\t", "|"].reduce((best, next) => (count(next) > count(best) ? next : best));
}
