/** Checks callers' input here, because the server's own rules differ or are missing. */

import { posix } from "node:path";
import { ENV_NAME_PATTERN, SandlotError } from "@sandlot/contract";

const PATH_MAX_BYTES = 4_095;
/** The kernel's limit of an argument; the server passes the whole command as one. */
const COMMAND_MAX_BYTES = 120 * 1024;

/** The normalized path. */
export function checkPath(path: string): string {
  const problem = problemOf(path);
  if (problem === null) return posix.resolve("/", path);
  throw new SandlotError("invalid_path", { path: String(path).slice(0, 200), problem });
}

function problemOf(path: unknown): string | null {
  if (typeof path !== "string") return "it is not a string";
  if (!path.startsWith("/")) return "it is not absolute";
  if (path.includes("\0")) return "it contains a NUL byte";
  if (!path.isWellFormed()) return "it is not well-formed text";
  return Buffer.byteLength(path) > PATH_MAX_BYTES ? `it has more than ${PATH_MAX_BYTES} bytes` : null;
}

export function checkCommand(command: string | readonly string[]): void {
  const parts = typeof command === "string" ? [command] : command;
  if (parts.length === 0) throw invalid("command", "it is an empty list");
  if (parts.some((part) => part.includes("\0"))) throw invalid("command", "it contains a NUL byte");
  const bytes = parts.reduce((sum, part) => sum + Buffer.byteLength(part), 0);
  if (bytes > COMMAND_MAX_BYTES) throw invalid("command", `it has more than ${COMMAND_MAX_BYTES} bytes`);
}

export function checkEnvironment(env: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(env)) {
    if (!ENV_NAME_PATTERN.test(name)) throw invalid("env", `${JSON.stringify(name)} is not the name of a variable`);
    if (value.includes("\0")) throw invalid("env", `the value of ${name} contains a NUL byte`);
  }
}

export function checkDuration(ms: number, field = "timeoutMs"): void {
  if (!Number.isFinite(ms) || ms < 0) throw invalid(field, "it is not a duration");
}

/** An integer of at least `least`, if given. */
export function checkCount(value: number | undefined, field: string, least: number): void {
  if (value !== undefined && (!Number.isSafeInteger(value) || value < least))
    throw invalid(field, `it is not a whole number from ${least}`);
}

export function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}

export function missing(capability: string, neededBy: string): SandlotError {
  return new SandlotError("capability_missing", { backend: "aio", capability, neededBy });
}

/** Quotes one shell word. */
export function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
