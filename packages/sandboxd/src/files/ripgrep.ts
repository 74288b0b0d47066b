/**
 * Ripgrep as a filter: it names the files that may contain a match, and our own matcher decides.
 *
 * The two languages differ in details (the meaning of `\w`, invalid UTF-8). So ripgrep's result is used only where it
 * surely contains every file that ours would find: for plain text and for a common part of the language, with the rest
 * widened (`.` to any few bytes). Everything else is searched without it. Matches are therefore the same with and
 * without ripgrep.
 *
 * Ripgrep does not see files that are too large to be searched, because it would read a sparse one for hours; `find`
 * names them.
 */

import { execFile, spawnSync } from "node:child_process";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { SEARCH_PATH } from "../exec/fifo-pool.ts";

export interface Search {
  readonly pattern: string;
  readonly literal: boolean;
  readonly caseSensitive: boolean;
  /** Directories to skip, relative to the root. */
  readonly unlisted: readonly string[];
}

const ANSWER_MAX_BYTES = 64 * 1024 * 1024;
const ENVIRONMENT = { PATH: SEARCH_PATH };

/** Relative to `root`, sorted. */
export interface Candidates {
  readonly paths: readonly string[];
  /** Files over the limit, with any content. */
  readonly tooLarge: readonly string[];
}

/** `null` when ripgrep is missing or cannot decide. */
export async function candidates(root: string, search: Search): Promise<Candidates | null> {
  const expression = search.literal ? plainText(search.pattern) : widened(search.pattern);
  if (expression === null || !isInstalled()) return null;
  const args = [
    ...["--files-with-matches", "--null", "--no-config", "--no-ignore", "--hidden", "--text", "--crlf"],
    ...["--encoding", "none", "--no-heading", "--color", "never"],
    ...["--max-filesize", String(SANDBOX_LIMITS.grepFileMaxBytes)],
    search.caseSensitive ? "--case-sensitive" : "--ignore-case",
    // A slash at the start means the root of the search.
    ...search.unlisted.flatMap((path) => ["--glob", `!/${path}`]),
    ...["--regexp", expression, "--", "."],
  ];
  const skipped = search.unlisted.flatMap((path) => ["-path", `./${path}`, "-prune", "-o"]);
  const larger = [".", ...skipped, "-type", "f", "-size", `+${SANDBOX_LIMITS.grepFileMaxBytes}c`, "-print0"];
  const [paths, tooLarge] = await Promise.all([
    // 1 is "nothing found"; 2 includes an unreadable directory, which must be reported.
    pathsFrom("rg", args, root, 1),
    pathsFrom("find", larger, root, 0),
  ]);
  return paths === null || tooLarge === null ? null : { paths, tooLarge };
}

async function pathsFrom(
  program: string,
  args: readonly string[],
  cwd: string,
  emptyCode: number,
): Promise<string[] | null> {
  const answer = await new Promise<string | null>((resolve) => {
    const options = { cwd, env: ENVIRONMENT, maxBuffer: ANSWER_MAX_BYTES, encoding: "utf8" } as const;
    execFile(program, args, options, (error, stdout) => {
      resolve(error === null || error.code === emptyCode ? stdout : null);
    }).stdin?.end();
  });
  if (answer === null || answer.includes("\ufffd")) return null;
  const paths = answer.split("\0").filter((path) => path !== "");
  return paths.map((path) => (path.startsWith("./") ? path.slice(2) : path)).sort();
}

let installed: boolean | undefined;

function isInstalled(): boolean {
  installed ??= spawnSync("rg", ["--version"], { env: ENVIRONMENT, stdio: "ignore" }).status === 0;
  return installed;
}

function plainText(pattern: string): string | null {
  // The two languages agree on upper and lower case for ASCII only.
  if (pattern === "" || !/^[\x20-\x7e\t]+$/.test(pattern)) return null;
  return pattern.replace(/[\\^$.*+?()[\]{}|#&~-]/g, "\\$&");
}

/** The pattern in ripgrep's language, matching at least as much; `null` when that is not certain. */
export function widened(pattern: string): string | null {
  if (!/^[\x20-\x7e\t]+$/.test(pattern)) return null;
  let result = "";
  for (let at = 0; at < pattern.length; ) {
    const token = TOKEN.exec(pattern.slice(at))?.[0];
    if (token === undefined) return null;
    result += WIDENED[token] ?? token;
    at += token.length;
  }
  return result;
}

/** Escaped punctuation; the classes below; sets of plain characters; groups without a question mark; plain characters. */
const TOKEN =
  /^(?:\\[.\\/()[\]{}|*+?^$-]|\\[dwst]|\[(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ .,:;=/@%!'"<>])+\]|\((?!\?)|\(\?:|[).*+?|^$]|[A-Za-z0-9_ \t,:;=/@%!'"`<>#&~-])/;

const WIDENED: Readonly<Record<string, string>> = {
  ".": "(?:(?-u:[^\\n]){1,4})",
  "\\d": "[0-9]",
  "\\w": "[A-Za-z0-9_]",
  "\\s": "(?:\\s|\\x{FEFF})",
  "\\/": "/",
  "#": "\\#",
  "&": "\\&",
  "~": "\\~",
};
