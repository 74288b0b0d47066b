/**
 * Markdown as a tree of blocks and pieces, for elements: nothing of the text is ever markup. It knows what documents
 * use: headings, paragraphs, lists, quotes, code, tables, rules, emphasis, links.
 *
 * Invariants
 * - HTML in the text is text. A link leads to `http`, `https` or `mailto`, or is text; an image is a link to it, because
 *   a page loads nothing from elsewhere.
 * - The time is linear: nesting is bounded, and a closing mark is looked for in a window.
 */

export type Inline =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "strong" | "em" | "del"; readonly inner: readonly Inline[] }
  | { readonly kind: "link"; readonly href: string; readonly inner: readonly Inline[] };

export type Block =
  | { readonly kind: "heading"; readonly level: number; readonly inner: readonly Inline[] }
  | { readonly kind: "paragraph"; readonly inner: readonly Inline[] }
  | { readonly kind: "code"; readonly language: string; readonly text: string }
  | { readonly kind: "quote"; readonly blocks: readonly Block[] }
  | { readonly kind: "list"; readonly start: number | null; readonly items: readonly (readonly Block[])[] }
  | { readonly kind: "table"; readonly header: readonly Cell[]; readonly rows: readonly (readonly Cell[])[] }
  | { readonly kind: "rule" };
type Cell = readonly Inline[];

const DEPTH_MAX = 8;
const COLUMNS_MAX = 50;
/** How far a closing mark may be. */
const WINDOW = 1_000;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]{0,20})/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+|$)/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const DELIMITERS = /^[\s|:-]+$/;
/** A line as far as patterns look at it. */
const HEAD = 200;

export function parseMarkdown(text: string): readonly Block[] {
  return blocksOf(text.replaceAll("\r\n", "\n").split("\n"), 0);
}

function blocksOf(lines: readonly string[], depth: number): readonly Block[] {
  const blocks: Block[] = [];
  let paragraph: string[] = [];
  const flush = () => {
    if (paragraph.length > 0) blocks.push({ kind: "paragraph", inner: inlinesOf(paragraph.join("\n"), 0) });
    paragraph = [];
  };
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const read = depth < DEPTH_MAX ? blockAt(lines, at, depth, paragraph.length > 0) : null;
    if (read !== null) {
      flush();
      blocks.push(read.block);
      at = read.next;
      continue;
    }
    const under = /^ {0,3}(=+|-+)\s*$/.exec(line.slice(0, HEAD));
    if (paragraph.length > 0 && under !== null) {
      const level = under[1]?.startsWith("=") === true ? 1 : 2;
      blocks.push({ kind: "heading", level, inner: inlinesOf(paragraph.join("\n"), 0) });
      paragraph = [];
    } else if (line.trim() === "") flush();
    else paragraph.push(line.trim());
    at += 1;
  }
  flush();
  return blocks;
}

interface Read {
  readonly block: Block;
  readonly next: number;
}

/** The block that begins at this line; `null`: a paragraph, or none. */
function blockAt(lines: readonly string[], at: number, depth: number, isInParagraph: boolean): Read | null {
  const line = lines[at] ?? "";
  const head = line.slice(0, HEAD);
  const [, fence, language = ""] = FENCE.exec(head) ?? [];
  if (fence !== undefined) return codeAt(lines, at, fence, language);
  const [, marks] = HEADING.exec(head) ?? [];
  if (marks !== undefined) {
    const inner = inlinesOf(
      line
        .trim()
        .slice(marks.length)
        .replace(/\s#{1,6}\s*$/, "")
        .trim(),
      0,
    );
    return { block: { kind: "heading", level: marks.length, inner }, next: at + 1 };
  }
  // Below a paragraph, dashes make it a heading.
  if (line.length < HEAD && RULE.test(head) && !(isInParagraph && /^ {0,3}-+\s*$/.test(head)))
    return { block: { kind: "rule" }, next: at + 1 };
  if (/^ {0,3}>/.test(head)) {
    let next = at;
    const inner: string[] = [];
    for (; next < lines.length && /^ {0,3}>/.test((lines[next] ?? "").slice(0, HEAD)); next += 1)
      inner.push((lines[next] ?? "").replace(/^ {0,3}> ?/, ""));
    return { block: { kind: "quote", blocks: blocksOf(inner, depth + 1) }, next };
  }
  if (ITEM.test(head)) return listAt(lines, at, depth);
  return tableAt(lines, at);
}

function codeAt(lines: readonly string[], at: number, fence: string, language: string): Read {
  let next = at + 1;
  const isEnd = (line: string) => {
    const [, mark] = /^ {0,3}(`{3,}|~{3,})\s*$/.exec(line.slice(0, HEAD)) ?? [];
    return mark !== undefined && mark[0] === fence[0] && mark.length >= fence.length;
  };
  while (next < lines.length && !isEnd(lines[next] ?? "")) next += 1;
  return { block: { kind: "code", language, text: lines.slice(at + 1, next).join("\n") }, next: next + 1 };
}

function listAt(lines: readonly string[], at: number, depth: number): Read {
  const [, , first = "-"] = ITEM.exec((lines[at] ?? "").slice(0, HEAD)) ?? [];
  const isOrdered = /\d/.test(first);
  const items: (readonly Block[])[] = [];
  let next = at;
  while (next < lines.length) {
    const begin = ITEM.exec((lines[next] ?? "").slice(0, HEAD));
    if (begin === null || /\d/.test(begin[2] ?? "") !== isOrdered) break;
    const width = begin[0].length;
    const inner = [(lines[next] ?? "").slice(width)];
    next += 1;
    // An item goes on with indented lines, and with lines of its paragraph.
    for (; next < lines.length; next += 1) {
      const line = lines[next] ?? "";
      const indent = line.length - line.trimStart().length;
      const isBlank = line.trim() === "";
      if (!isBlank && indent < 2 && (ITEM.test(line.slice(0, HEAD)) || inner.at(-1)?.trim() === "")) break;
      if (isBlank && (lines[next + 1] ?? "").trim() === "") break;
      inner.push(line.slice(Math.min(indent, width)));
    }
    items.push(blocksOf(inner, depth + 1));
    while (next < lines.length && (lines[next] ?? "").trim() === "") next += 1;
  }
  return { block: { kind: "list", start: isOrdered ? Number.parseInt(first, 10) : null, items }, next };
}

function tableAt(lines: readonly string[], at: number): Read | null {
  const line = lines[at] ?? "";
  const below = lines[at + 1] ?? "";
  if (!line.includes("|") || below.length > 2_000 || !below.includes("-") || !below.includes("|")) return null;
  if (!DELIMITERS.test(below)) return null;
  const header = cellsOf(line);
  const rows: Cell[][] = [];
  let next = at + 2;
  for (; next < lines.length && (lines[next] ?? "").includes("|"); next += 1) rows.push(cellsOf(lines[next] ?? ""));
  return { block: { kind: "table", header, rows }, next };
}

function cellsOf(line: string): Cell[] {
  const text = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return text.split("|", COLUMNS_MAX).map((cell) => inlinesOf(cell.trim(), 0));
}

const MARKS = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
] as const;

function inlinesOf(text: string, depth: number): readonly Inline[] {
  const out: Inline[] = [];
  let plainFrom = 0;
  let at = 0;
  const add = (inline: Inline, next: number) => {
    if (at > plainFrom) out.push({ kind: "text", text: text.slice(plainFrom, at) });
    out.push(inline);
    at = next;
    plainFrom = next;
  };
  while (at < text.length) {
    const letter = text[at] ?? "";
    if (!"\\`*_~[!h<".includes(letter)) {
      at += 1;
      continue;
    }
    const read = depth < DEPTH_MAX ? inlineAt(text, at, depth) : null;
    if (read === null) at += 1;
    else add(read.inline, read.next);
  }
  if (plainFrom < text.length) out.push({ kind: "text", text: text.slice(plainFrom) });
  return out;
}

interface ReadInline {
  readonly inline: Inline;
  readonly next: number;
}

function inlineAt(text: string, at: number, depth: number): ReadInline | null {
  const letter = text[at];
  if (letter === "\\") {
    const next = text[at + 1] ?? "";
    return /[!-/:-@[-`{-~]/.test(next) ? { inline: { kind: "text", text: next }, next: at + 2 } : null;
  }
  if (letter === "`") return codeSpanAt(text, at);
  if (letter === "[" || letter === "!") return linkAt(text, at, depth);
  if (letter === "h" || letter === "<") return addressAt(text, at);
  const [mark, kind] = MARKS.find(([one]) => text.startsWith(one, at)) ?? [];
  if (mark === undefined || kind === undefined) return null;
  // Inside a word, an underscore is a letter.
  if (mark.startsWith("_") && /\w/.test(text[at - 1] ?? "")) return null;
  const from = at + mark.length;
  const end = within(text, mark, from + 1);
  if (end < 0 || /\s/.test(text[from] ?? " ") || /\s/.test(text[end - 1] ?? " ")) return null;
  return { inline: { kind, inner: inlinesOf(text.slice(from, end), depth + 1) }, next: end + mark.length };
}

function codeSpanAt(text: string, at: number): ReadInline | null {
  let length = 1;
  while (length < 10 && text[at + length] === "`") length += 1;
  const end = within(text, "`".repeat(length), at + length);
  return end < 0 ? null : { inline: { kind: "code", text: text.slice(at + length, end).trim() }, next: end + length };
}

function linkAt(text: string, at: number, depth: number): ReadInline | null {
  const isImage = text[at] === "!";
  const open = isImage ? at + 1 : at;
  if (text[open] !== "[") return null;
  const middle = within(text, "](", open + 1);
  const end = middle < 0 ? -1 : within(text, ")", middle + 2);
  if (end < 0) return null;
  const label = text.slice(open + 1, middle);
  const [address = ""] = text
    .slice(middle + 2, end)
    .trim()
    .split(/\s/, 1);
  const href = safeAddress(address.replace(/^<|>$/g, ""));
  const inner = isImage
    ? [{ kind: "text", text: `[image: ${label || address}]` } as const]
    : inlinesOf(label, Math.max(depth + 1, DEPTH_MAX - 2));
  if (href !== null) return { inline: { kind: "link", href, inner }, next: end + 1 };
  return { inline: { kind: "em", inner }, next: end + 1 };
}

function addressAt(text: string, at: number): ReadInline | null {
  const isBracketed = text[at] === "<";
  const from = isBracketed ? at + 1 : at;
  if (!/^(?:https?:\/\/|mailto:)/.test(text.slice(from, from + 8))) return null;
  let end = from;
  while (end < text.length && end - from < WINDOW && !/[\s<>"]/.test(text[end] ?? "")) end += 1;
  if (isBracketed && text[end] !== ">") return null;
  if (!isBracketed) while (end > from && /[.,;:!?)'*_]/.test(text[end - 1] ?? "")) end -= 1;
  const address = text.slice(from, end);
  const href = safeAddress(address);
  if (href === null) return null;
  const inner = [{ kind: "text", text: address } as const];
  return { inline: { kind: "link", href, inner }, next: isBracketed ? end + 1 : end };
}

/** The first place of `mark` from here on, not too far away; -1. */
function within(text: string, mark: string, from: number): number {
  const at = text.slice(from, from + WINDOW).indexOf(mark);
  return at < 0 ? -1 : from + at;
}

export function safeAddress(text: string): string | null {
  const url = URL.parse(text);
  return url !== null && ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}
