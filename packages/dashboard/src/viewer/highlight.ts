/**
 * Colours for source text, in one pass.
 *
 * Invariants
 * - The time is linear in the text, whatever it is: no regular expression runs over more than one word. A file from a
 *   sandbox must not stop the page that shows it.
 * - The pieces are the text itself, in order and complete; only their kinds are guesses.
 */

export type Kind = "comment" | "string" | "number" | "keyword" | "plain";

export interface Piece {
  readonly kind: Kind;
  readonly text: string;
}

interface Language {
  readonly line?: readonly string[];
  readonly block?: readonly [open: string, close: string];
  /** Delimiters of strings; those of several letters may span lines. */
  readonly strings: readonly string[];
  readonly words: ReadonlySet<string>;
}

const words = (text: string) => new Set(text.split(" "));
const C_WORDS =
  "abstract as async await bool boolean break case catch char class const continue default defer delete do double else " +
  "enum export extends extern false final finally float fn for foreach from func function go if impl implements import " +
  "in instanceof int interface let long loop match mod module move mut namespace new nil null of override package " +
  "private protected pub public readonly ref return self short signed sizeof static string struct super switch this " +
  "throw throws trait true try type typedef typeof undefined union unsafe unsigned use using var virtual void volatile " +
  "where while with yield";
const C: Language = { line: ["//"], block: ["/*", "*/"], strings: ["`", '"', "'"], words: words(C_WORDS) };
const PYTHON: Language = {
  line: ["#"],
  strings: ['"""', "'''", '"', "'"],
  words: words(
    "and as assert async await break case class continue def del elif else except False finally for from global if " +
      "import in is lambda match None nonlocal not or pass raise return self True try while with yield",
  ),
};
const SHELL: Language = {
  line: ["#"],
  strings: ['"', "'"],
  words: words(
    "case do done echo elif else end ensure esac export fi for function if in local module begin def class return " +
      "require set then unless until while",
  ),
};
const DATA: Language = {
  line: ["#", ";"],
  strings: ['"', "'"],
  words: words("true false null yes no on off True False None"),
};
const SQL: Language = {
  line: ["--"],
  block: ["/*", "*/"],
  strings: ["'", '"'],
  words: words(
    "all and as asc begin between by case commit create cross delete desc distinct drop else end exists from full " +
      "group having in index inner insert into is join key left like limit not null offset on or order outer primary " +
      "references right rollback select set table then union unique update values view when where with",
  ),
};
const MARKUP: Language = { block: ["<!--", "-->"], strings: ['"'], words: new Set() };
const STYLES: Language = { block: ["/*", "*/"], strings: ['"', "'"], words: words("important media import supports") };

const OF: Readonly<Record<string, Language>> = {
  ...named("c h cc cpp hpp cs go java js jsx mjs cjs ts tsx mts cts kt rs scala swift php dart zig proto json5", C),
  ...named("py pyi", PYTHON),
  ...named("sh bash zsh fish rb pl r jl dockerfile makefile mk nix tf", SHELL),
  ...named("json yaml yml toml ini conf cfg env properties", DATA),
  ...named("sql", SQL),
  ...named("html htm xml svg vue svelte xhtml rss", MARKUP),
  ...named("css scss less", STYLES),
};

function named(extensions: string, language: Language): Record<string, Language> {
  return Object.fromEntries(extensions.split(" ").map((extension) => [extension, language]));
}

/** By the name's extension, or the whole name: `Makefile`. */
export function languageOf(name: string): Language | null {
  const last = (name.split(".").at(-1) ?? "").toLowerCase();
  return Object.hasOwn(OF, last) ? (OF[last] ?? null) : null;
}

const isWord = (code: number) =>
  (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code === 95 || code > 127;
const isDigit = (code: number) => code >= 48 && code <= 57;

export function highlight(text: string, language: Language): readonly Piece[] {
  const pieces: Piece[] = [];
  let plainFrom = 0;
  let at = 0;
  const upper = language === SQL;
  const add = (kind: Kind, to: number) => {
    if (at > plainFrom) pieces.push({ kind: "plain", text: text.slice(plainFrom, at) });
    pieces.push({ kind, text: text.slice(at, to) });
    at = to;
    plainFrom = to;
  };
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (isWord(code)) {
      let end = at + 1;
      while (end < text.length && isWord(text.charCodeAt(end))) end += 1;
      const word = end - at > 20 ? "" : text.slice(at, end);
      if (isDigit(code)) add("number", end);
      else if (language.words.has(upper ? word.toLowerCase() : word)) add("keyword", end);
      else at = end;
      continue;
    }
    const end = commentEnd(text, at, language);
    if (end !== null) {
      add("comment", end);
      continue;
    }
    const quote = language.strings.find((one) => text.startsWith(one, at));
    if (quote === undefined) at += 1;
    else add("string", stringEnd(text, at, quote));
  }
  if (plainFrom < text.length) pieces.push({ kind: "plain", text: text.slice(plainFrom) });
  return pieces;
}

function commentEnd(text: string, at: number, { line, block }: Language): number | null {
  if (line?.some((mark) => text.startsWith(mark, at)) === true) {
    const end = text.indexOf("\n", at);
    return end < 0 ? text.length : end;
  }
  if (block === undefined || !text.startsWith(block[0], at)) return null;
  const end = text.indexOf(block[1], at + block[0].length);
  return end < 0 ? text.length : end + block[1].length;
}

/** One of a single letter, other than a backtick, ends at the line's end at the latest. */
function stringEnd(text: string, at: number, quote: string): number {
  const spansLines = quote.length > 1 || quote === "`";
  for (let end = at + quote.length; end < text.length; end += 1) {
    const letter = text[end];
    if (letter === "\\") end += 1;
    else if (letter === "\n" && !spansLines) return end;
    else if (text.startsWith(quote, end)) return end + quote.length;
  }
  return text.length;
}
