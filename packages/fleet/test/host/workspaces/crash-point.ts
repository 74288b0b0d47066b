/**
 * Ends a process's effect on the disk before its n-th file system call: really (`kill`), or simulated (`play-dead`),
 * when that call and every later one fails without being made, also those of handlers that clean up.
 *
 * Counted are all calls of `node:fs` (synchronous), of `node:fs/promises` and of its file handles. Reading and closing
 * count too: a process can be killed between any two.
 */

import fs from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";

export class Died extends Error {
  override readonly name = "Died";
}

export interface CrashPoint {
  /** The number of calls. */
  readonly calls: () => number;
  /** The last call. */
  readonly last: () => string;
  remove(): void;
}

type Functions = Record<string, unknown>;

export async function crashBefore(call: number, how: "kill" | "play-dead"): Promise<CrashPoint> {
  const handle = await promises.open("/dev/null", "r");
  const prototype = Object.getPrototypeOf(handle) as Functions;
  await handle.close();
  let calls = 0;
  let last = "";
  const undo: (() => void)[] = [];
  const patch = (target: Functions, name: string, isAsync: boolean) => {
    const original = target[name];
    if (typeof original !== "function") return;
    target[name] = function (this: unknown, ...args: unknown[]): unknown {
      calls++;
      last = name;
      if (calls >= call) {
        if (how === "kill") process.kill(process.pid, "SIGKILL");
        const died = new Died(`before call ${call}, ${name}`);
        // Descriptors of this process are not the disk: they are closed, so that a test can go on.
        if (!/^close/.test(name)) {
          if (isAsync) return Promise.reject(died);
          throw died;
        }
      }
      return Reflect.apply(original, this, args);
    };
    undo.push(() => {
      target[name] = original;
    });
  };
  for (const name of Object.keys(fs)) if (name.endsWith("Sync")) patch(fs as unknown as Functions, name, false);
  for (const name of Object.keys(promises)) patch(promises as unknown as Functions, name, true);
  for (const name of ["chmod", "chown", "close", "read", "stat", "sync", "write"]) patch(prototype, name, true);
  syncBuiltinESMExports();
  return {
    calls: () => calls,
    last: () => last,
    remove: () => {
      for (const restore of undo) restore();
      syncBuiltinESMExports();
    },
  };
}
