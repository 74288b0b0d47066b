/**
 * Glob patterns, for `glob`, `grep` and the memory backend's shell. The same language on every backend:
 *
 * `*` and `?` match within one name, `**` as a whole name matches any number of directories, `[a-z]` and `[!a-z]` are
 * sets, `{a,b}` are alternatives, a backslash escapes the next character. Names that begin with a dot match like any
 * other; only the shell treats them differently. A pattern without a slash is matched against the name alone, at any
 * depth.
 *
 * A pattern is matched by steps over tokens, not by a regular expression: the work is bounded by the product of both
 * lengths, so no pattern can take forever.
 */

import { SandlotError } from "@sandlot/contract";

export interface PathPattern {
  /** Whether a path relative to the start of the search matches. */
  matches(relativePath: string): boolean;
  /** Whether anything below this directory could match. */
  mayMatchBelow(relativePath: string): boolean;
}

const PATTERN_MAX_CHARS = 1_000;
const ALTERNATIVES_MAX = 64;

/** A test for one item, or any number of items. */
type Token<Item> = ((item: Item) => boolean) | "any";

export function pathPattern(pattern: string): PathPattern {
  const problem = problemOf(pattern);
  if (problem !== undefined) throw refusal(pattern.slice(0, 200), problem);
  const alternatives = expandBraces(pattern);
  if (alternatives.length > ALTERNATIVES_MAX)
    throw refusal(pattern, `it has more than ${ALTERNATIVES_MAX} alternatives`);
  const compiled = alternatives.map(pathTokens);
  if (!pattern.includes("/")) {
    return {
      matches: (path) => compiled.some((tokens) => matches(tokens, [path.slice(path.lastIndexOf("/") + 1)])),
      mayMatchBelow: () => true,
    };
  }
  return {
    matches: (path) => compiled.some((tokens) => matches(tokens, path.split("/"))),
    mayMatchBelow: (path) => compiled.some((tokens) => isPossibleStart(tokens, path.split("/"))),
  };
}

/** Matches one name or, in the shell, any text: a slash is an ordinary character. */
export function nameMatcher(pattern: string): (name: string) => boolean {
  const tokens = nameTokens(pattern);
  return (name) => matches(tokens, [...name]);
}

/** Whether the text has special characters; if not, it is a plain name. */
export function isPattern(text: string): boolean {
  // An unclosed bracket is literal; the shell's own `[` is the most frequent one.
  return /[*?]|\[.+\]/s.test(text);
}

/** Backtracks to the last star and lets it take one item more whenever the rest does not fit. */
function matches<Item>(tokens: readonly Token<Item>[], items: readonly Item[]): boolean {
  let at = 0;
  let star = -1;
  let mark = 0;
  for (let i = 0; i < items.length; ) {
    const token = tokens[at];
    if (typeof token === "function" && token(items[i] as Item)) {
      at++;
      i++;
    } else if (token === "any") {
      star = at++;
      mark = i;
    } else if (star >= 0) {
      at = star + 1;
      i = ++mark;
    } else return false;
  }
  while (tokens[at] === "any") at++;
  return at === tokens.length;
}

/** The names up to the first `**` must fit, and something must be left to match. */
function isPossibleStart(tokens: readonly Token<string>[], names: readonly string[]): boolean {
  for (const [index, name] of names.entries()) {
    const token = tokens[index];
    if (token === "any") return true;
    if (token === undefined || !token(name)) return false;
  }
  return tokens.length > names.length;
}

function problemOf(pattern: string): string | undefined {
  if (pattern === "") return "it is empty";
  if (pattern.includes("\0")) return "it contains a NUL byte";
  if (pattern.startsWith("/")) return "it must be relative to the path that is searched";
  if (pattern.length > PATTERN_MAX_CHARS) return `it has more than ${PATTERN_MAX_CHARS} characters`;
  if (pattern.split("/").includes("..")) return "it must not leave the path that is searched";
  return undefined;
}

function refusal(pattern: string, problem: string): SandlotError {
  return new SandlotError("invalid_pattern", { pattern, problem });
}

function pathTokens(pattern: string): Token<string>[] {
  const names = pattern.split("/").filter((name) => name !== "" && name !== ".");
  const tokens = names.map((name): Token<string> => (name === "**" ? "any" : nameMatcher(name)));
  // The content of a directory excludes the directory itself: a last `**` needs at least one name.
  if (names.at(-1) === "**") tokens.push(() => true);
  return tokens;
}

function nameTokens(pattern: string): Token<string>[] {
  const tokens: Token<string>[] = [];
  const chars = [...pattern];
  for (let i = 0; i < chars.length; i++) {
    const char = chars[i] as string;
    const set = char === "[" ? readSet(chars, i) : undefined;
    if (set !== undefined) {
      tokens.push((item) => set.expression.test(item));
      i = set.end;
    } else if (char === "*") tokens.push("any");
    else if (char === "?") tokens.push(() => true);
    else {
      const literal = char === "\\" && i + 1 < chars.length ? chars[++i] : char;
      tokens.push((item) => item === literal);
    }
  }
  return tokens;
}

/** An unclosed set is a literal bracket, as in every shell. */
function readSet(chars: readonly string[], start: number): { expression: RegExp; end: number } | undefined {
  let i = start + 1;
  const negated = chars[i] === "!" || chars[i] === "^";
  if (negated) i++;
  let body = "";
  for (let first = true; i < chars.length; i++, first = false) {
    const char = chars[i] as string;
    if (char === "]" && !first) return compileSet(`[${negated ? "^" : ""}${body}]`, i);
    const named = char === "[" ? /^\[:([a-z]+):\]/.exec(chars.slice(i, i + 12).join("")) : null;
    const members = CHARACTER_CLASSES[named?.[1] ?? ""];
    if (named !== null && members !== undefined) {
      body += members;
      i += named[0].length - 1;
    } else body += /[\\[\]^]/.test(char) ? `\\${char}` : char;
  }
  return undefined;
}

function compileSet(source: string, end: number): { expression: RegExp; end: number } | undefined {
  try {
    return { expression: new RegExp(source), end };
  } catch {
    // A reversed range such as `[z-a]` is literal, too.
    return undefined;
  }
}

/** The members of POSIX character classes, as written in a JavaScript set. */
export const CHARACTER_CLASSES: Readonly<Record<string, string>> = {
  alnum: "A-Za-z0-9",
  alpha: "A-Za-z",
  blank: " \\t",
  cntrl: "\\x00-\\x1f\\x7f",
  digit: "0-9",
  lower: "a-z",
  print: "\\x20-\\x7e",
  punct: "!-\\/:-@\\[-`{-~",
  space: "\\s",
  upper: "A-Z",
  xdigit: "0-9A-Fa-f",
};

/** Stops at one more than is allowed: a product of many sets must not be built before it is refused. */
function expandBraces(pattern: string): string[] {
  const open = pattern.indexOf("{");
  const close = open < 0 ? -1 : closingBrace(pattern, open);
  if (close < 0) return [pattern];
  const before = pattern.slice(0, open);
  const afters = expandBraces(pattern.slice(close + 1));
  const results: string[] = [];
  for (const part of splitAlternatives(pattern.slice(open + 1, close)).flatMap(expandBraces)) {
    for (const after of afters) {
      results.push(before + part + after);
      if (results.length > ALTERNATIVES_MAX) return results;
    }
  }
  return results;
}

function closingBrace(pattern: string, open: number): number {
  let depth = 0;
  for (let i = open; i < pattern.length; i++) {
    if (pattern.charAt(i) === "{") depth++;
    if (pattern.charAt(i) === "}" && --depth === 0) return i;
  }
  return -1;
}

function splitAlternatives(body: string): string[] {
  const parts = [""];
  let depth = 0;
  for (const char of body) {
    if (char === "{") depth++;
    if (char === "}") depth--;
    if (char === "," && depth === 0) parts.push("");
    else parts[parts.length - 1] += char;
  }
  return parts;
}
