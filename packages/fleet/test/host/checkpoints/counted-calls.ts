/**
 * Counts every file system call of this process, whichever module makes it: the functions of `node:fs` and
 * `node:fs/promises`, and the methods of file handles. SQLite's calls on lock files, which stay empty, are not seen.
 */

import fs, { constants } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { devNull } from "node:os";

/** `+`: it needs room on the disk. `-`: it changes the disk without. `.`: it only reads. */
export type Effect = "+" | "-" | ".";
/** Called before each call. The call fails with the error that it returns. */
export type Watcher = (effect: Effect) => Error | null;

/** These only compute, or make calls that are counted themselves. */
const NOT_COUNTED =
  /^(Dir|Dirent|FileReadStream|FileWriteStream|ReadStream|Stats|Utf8Stream|WriteStream|_|create|watch|unwatch|openAsBlob)/;
const ADDS = /^(appendFile|copyFile|cp|link|mkdir|mkdtemp|symlink|write|writev|writeFile)(Sync)?$/;
const CHANGES = /^([fl]?chmod|[fl]?chown|rename|rm|rmdir|f?truncate|unlink|[fl]?utimes)(Sync)?$/;

export async function countCalls(watcher: Watcher): Promise<void> {
  const handle = await fs.promises.open(devNull);
  const methods = Object.getPrototypeOf(handle) as object;
  await handle.close();
  watch(fs, watcher, (error) => {
    throw error;
  });
  for (const target of [fs.promises, methods]) watch(target, watcher, (error) => Promise.reject(error));
  syncBuiltinESMExports();
}

function watch(target: object, watcher: Watcher, fail: (error: Error) => unknown): void {
  for (const name of Object.getOwnPropertyNames(target)) {
    const call = Object.getOwnPropertyDescriptor(target, name)?.value;
    if (typeof call !== "function" || name === "constructor" || NOT_COUNTED.test(name)) continue;
    const counted = function (this: unknown, ...args: readonly unknown[]): unknown {
      const error = watcher(effectOf(name, args[1]));
      return error === null ? Reflect.apply(call, this, args) : fail(error);
    };
    Object.defineProperty(target, name, { value: Object.assign(counted, call), configurable: true, writable: true });
  }
}

function effectOf(name: string, flags: unknown): Effect {
  if (name === "open" || name === "openSync") return isCreating(flags) ? "+" : ".";
  return ADDS.test(name) ? "+" : CHANGES.test(name) ? "-" : ".";
}

function isCreating(flags: unknown): boolean {
  return typeof flags === "number"
    ? (flags & constants.O_CREAT) !== 0
    : typeof flags === "string" && /[wa]/.test(flags);
}
