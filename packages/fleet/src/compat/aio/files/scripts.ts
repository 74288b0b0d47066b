/**
 * Small scripts for file operations that AIO's own calls do not guarantee: atomic, and with a typed error for every
 * failure.
 *
 * Input comes as variables, never as text of the script. A script fails with its tools' messages, in the C locale,
 * which are looked up here.
 */

import { SandlotError, SYSTEM_PATH } from "@sandlot/contract";
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

/** The first match decides. */
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

  /** The script's output. A failure is about `path`. */
  async run(text: string, variables: Readonly<Record<string, string>>, path: string): Promise<string> {
    const sessionId = await this.#sessions.take();
    // Its own tools come from the system: a sandbox writes to the other folders.
    const env = { ...variables, LC_ALL: "C", PATH: SYSTEM_PATH };
    const start = { sessionId, text: `exec </dev/null; cd /\n${text}`, env, timeoutMs: SCRIPT_MS };
    const { outcome, stdout, stderr } = await runCommand(this.#calls, start);
    this.#sessions.giveBack(sessionId);
    if (outcome.exitCode === 0) return stdout.tail(Number.POSITIVE_INFINITY).text;
    throw failure(stderr.tail(Number.POSITIVE_INFINITY).text, path);
  }
}

/** How much of a tool's last message is searched. */
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
