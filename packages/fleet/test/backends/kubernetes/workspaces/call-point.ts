/**
 * Stops one gateway before its n-th call to the volume while others go on, or loses the answer of its n-th rename. The calls
 * of that gateway are told apart by their asynchronous context. Counted are all calls of `node:fs/promises`.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import fs from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";

type Functions = Record<string, (...args: unknown[]) => unknown>;
/** A synchronous rename cannot wait, so only its answer can be lost. */
interface Around {
  async(name: string, proceed: () => unknown): unknown;
  renameSync?(proceed: () => unknown): unknown;
}

const context = new AsyncLocalStorage<Around>();

/** Every call that `work` makes to the volume passes through `around`. */
export async function callingThrough<T>(around: Around, work: () => Promise<T>): Promise<T> {
  return context.run(around, work);
}

/** For the length of a test file: named imports of Node's modules see the patched functions. */
export function watchCalls(): () => void {
  const functions = promises as unknown as Functions;
  const originals = Object.entries(functions).filter(([, value]) => typeof value === "function");
  for (const [name, original] of originals) {
    functions[name] = function (this: unknown, ...args: unknown[]): unknown {
      const proceed = () => Reflect.apply(original, this, args);
      const around = context.getStore();
      return around === undefined ? proceed() : around.async(name, proceed);
    };
  }
  const { renameSync } = fs;
  fs.renameSync = (from, to) => {
    const lose = context.getStore()?.renameSync;
    return lose === undefined ? renameSync(from, to) : (lose(() => renameSync(from, to)) as undefined);
  };
  syncBuiltinESMExports();
  return () => {
    for (const [name, original] of originals) functions[name] = original;
    fs.renameSync = renameSync;
    syncBuiltinESMExports();
  };
}

export interface Paused<T> {
  /** Resolves when the call is reached, or when the work has ended before it. */
  readonly reached: Promise<"paused" | "ended">;
  readonly outcome: Promise<T>;
  resume(): void;
}

export function pauseBefore<T>(call: number, work: () => Promise<T>): Paused<T> {
  let calls = 0;
  const reached = Promise.withResolvers<"paused" | "ended">();
  const resumed = Promise.withResolvers<void>();
  const wait = async (_: string, proceed: () => unknown) => {
    if (++calls !== call) return proceed();
    reached.resolve("paused");
    await resumed.promise;
    return proceed();
  };
  const outcome = callingThrough({ async: wait }, work);
  outcome.then(
    () => reached.resolve("ended"),
    () => reached.resolve("ended"),
  );
  return { reached: reached.promise, outcome, resume: () => resumed.resolve() };
}

/**
 * The n-th rename takes effect, and its answer is that of a server which gets the request a second time: the source is
 * gone. Returns whether there was such a rename.
 */
export async function loseRename(rename: number, work: () => Promise<unknown>): Promise<boolean> {
  let count = 0;
  const lost = () => Object.assign(new Error("ENOENT: answered to the second request"), { code: "ENOENT" });
  const around: Around = {
    async async(name, proceed) {
      const result = await proceed();
      if (name === "rename" && ++count === rename) throw lost();
      return result;
    },
    renameSync(proceed) {
      proceed();
      if (++count === rename) throw lost();
    },
  };
  await callingThrough(around, work);
  return count >= rename;
}
