/**
 * Small scripts that do with files what AIO's own calls do not promise: atomically, with the type of every failure.
 *
 * A script's words come in as variables, never as text of the script. It fails as its tools do, in the language of the C
 * library, and what they say is looked up here.
 */

import { SandlotError } from "@sandlot/contract";
import type { AioCalls } from "../calls.ts";
import { runCommand } from "../exec/run.ts";
import type { BashSessions } from "../exec/sessions.ts";

/** More than any of them takes on a busy machine. */
const SCRIPT_MS = 60_000;

type FileCode =
  | "file_not_found"
  | "not_a_directory"
  | "is_a_directory"
  | "directory_not_empty"
  | "file_exists"
  | "permission_denied"
  | "read_only_path"
  | "disk_limit_exceeded";

/** In this order: the first that is said. */
const SAYINGS: readonly (readonly [RegExp, FileCode])[] = [
  [/cannot overwrite non-directory/i, "not_a_directory"],
  [/cannot overwrite directory|Is a directory/i, "is_a_directory"],
  [/No such file or directory/i, "file_not_found"],
  [/Not a directory/i, "not_a_directory"],
  [/Directory not empty/i, "directory_not_empty"],
  [/File exists/i, "file_exists"],
  [/Read-only file system/i, "read_only_path"],
  [/No space left|Disk quota exceeded|File too large/i, "disk_limit_exceeded"],
  [/Permission denied|Operation not permitted/i, "permission_denied"],
];

export class Scripts {
  readonly #calls: AioCalls;
  readonly #sessions: BashSessions;

  constructor(calls: AioCalls, sessions: BashSessions) {
    this.#calls = calls;
    this.#sessions = sessions;
  }

  /** What the script has printed. A failure is about `path`. */
  async run(text: string, variables: Readonly<Record<string, string>>, path: string): Promise<string> {
    const sessionId = await this.#sessions.take();
    const env = { ...variables, LC_ALL: "C" };
    const start = { sessionId, text: `exec </dev/null; cd /\n${text}`, env, timeoutMs: SCRIPT_MS };
    const { outcome, stdout, stderr } = await runCommand(this.#calls, start);
    this.#sessions.giveBack(sessionId);
    if (outcome.exitCode === 0) return stdout.tail(Number.POSITIVE_INFINITY).text;
    throw failure(stderr.tail(Number.POSITIVE_INFINITY).text, path);
  }
}

/** What a tool says at its end; more of it is not looked through. */
const SAID_MAX_CHARS = 64 * 1024;

function failure(all: string, path: string): SandlotError {
  const said = all.slice(-SAID_MAX_CHARS);
  const [, version] = /^sandlot-version:(.*)$/m.exec(said) ?? [];
  if (version !== undefined)
    return new SandlotError("file_changed", { path, expected: null, actual: version === "" ? null : version });
  if (/subdirectory of itself/.test(said))
    return new SandlotError("invalid_path", { path, problem: "a directory cannot be moved into itself" });
  const known = SAYINGS.find(([pattern]) => pattern.test(said));
  if (known !== undefined) return new SandlotError(known[1], { path });
  return new SandlotError("internal", { problem: `${path}: ${said.trim().slice(-500) || "it failed silently"}` });
}
