/** Paths from outside: absolute, within the kernel's limits, without NUL bytes. */

import { posix } from "node:path";
import { SandlotError } from "@sandlot/contract";

const PATH_MAX_BYTES = 4_095;
const NAME_MAX_BYTES = 255;

/** Checks before normalizing, so that the error shows the caller's text. */
export function checkPath(path: unknown): string {
  const problem = problemOf(path);
  if (problem === undefined) return posix.resolve("/", path as string);
  const text = typeof path === "string" ? path : String(path);
  throw new SandlotError("invalid_path", { path: text.length > 200 ? `${text.slice(0, 197)}...` : text, problem });
}

export function join(directory: string, name: string): string {
  return directory.endsWith("/") ? `${directory}${name}` : `${directory}/${name}`;
}

/** A relative path is below `directory`. An empty one is unchanged. */
export function pathBelow(directory: string, path: string): string {
  return path === "" || path.startsWith("/") ? path : join(directory, path);
}

function problemOf(path: unknown): string | undefined {
  if (typeof path !== "string") return "it is not a string";
  if (!path.startsWith("/")) return "it is not absolute";
  if (path.includes("\0")) return "it contains a NUL byte";
  if (Buffer.byteLength(path) > PATH_MAX_BYTES) return `it has more than ${PATH_MAX_BYTES} bytes`;
  if (path.length > NAME_MAX_BYTES / 3 && path.split("/").some((name) => Buffer.byteLength(name) > NAME_MAX_BYTES))
    return `a name in it has more than ${NAME_MAX_BYTES} bytes`;
  return undefined;
}
