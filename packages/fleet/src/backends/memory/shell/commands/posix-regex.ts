/**
 * POSIX regular expressions as JavaScript ones, for grep, sed and expr.
 *
 * Basic expressions escape what extended ones write plainly: `\(a\|b\)\{2\}` is `(a|b){2}`. Bracket expressions know
 * classes and take a backslash literally.
 */

import { CHARACTER_CLASSES } from "@sandlot/sandboxd/patterns";
import { UsageError } from "../failure.ts";

export function compilePosix(
  pattern: string,
  options: { extended: boolean; ignoreCase?: boolean; global?: boolean },
): RegExp {
  const source = translate(pattern, options.extended);
  try {
    return new RegExp(source, `${options.ignoreCase === true ? "i" : ""}${options.global === true ? "g" : ""}`);
  } catch {
    throw new UsageError(`invalid regular expression '${pattern}'`);
  }
}

export function escapeLiteral(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

function translate(pattern: string, extended: boolean): string {
  let result = "";
  for (let i = 0; i < pattern.length; i++) {
    const char = pattern.charAt(i);
    if (char === "[") {
      const bracket = translateBracket(pattern, i);
      result += bracket.source;
      i = bracket.end;
    } else if (char === "\\") result += translateEscape(pattern.charAt(++i), extended);
    else if (!extended && "+?(){}|".includes(char)) result += `\\${char}`;
    // A star that nothing precedes stands for itself.
    else if (char === "*" && (result === "" || result === "^" || result.endsWith("("))) result += "\\*";
    else if (!extended && char === "^" && i > 0 && !/\\[(|]$/.test(pattern.slice(0, i))) result += "\\^";
    else if (!extended && char === "$" && i < pattern.length - 1 && !/^\\[)|]/.test(pattern.slice(i + 1)))
      result += "\\$";
    else result += char;
  }
  return result;
}

function translateEscape(next: string, extended: boolean): string {
  if (next === "") throw new UsageError("trailing backslash");
  if (!extended && "+?(){}|".includes(next)) return next;
  if (next === "<" || next === ">") return "\\b";
  if (/[wWsSbB1-9nt]/.test(next)) return `\\${next}`;
  return escapeLiteral(next);
}

function translateBracket(pattern: string, start: number): { source: string; end: number } {
  let i = start + 1;
  let body = "";
  if (pattern.charAt(i) === "^") {
    body = "^";
    i++;
  }
  for (let first = true; i < pattern.length; i++, first = false) {
    const char = pattern.charAt(i);
    if (char === "]" && !first) return { source: `[${body}]`, end: i };
    const named = /^\[:([a-z]+):\]/.exec(pattern.slice(i));
    const members = CHARACTER_CLASSES[named?.[1] ?? ""];
    if (named !== null && members !== undefined) {
      body += members;
      i += named[0].length - 1;
    } else if (char === "\\" && /[nt]/.test(pattern.charAt(i + 1))) body += `\\${pattern.charAt(++i)}`;
    else body += /[\\[\]]/.test(char) ? `\\${char}` : char;
  }
  throw new UsageError("unmatched [");
}
