/**
 * Pseudo terminals, from the native file beside the daemon. If it is missing or does not load, there are no terminals;
 * everything else works.
 */

import { closeSync, existsSync } from "node:fs";
import { dirname } from "node:path";
import { SandlotError } from "@sandlot/contract";

interface NativePty {
  open(columns: number, rows: number): { readonly master: number; readonly slave: number; readonly pty: string };
  resize(fd: number, columns: number, rows: number): void;
}

export interface Pty {
  readonly masterFd: number;
  /** The path that a program opens as its side. */
  readonly slavePath: string;
}

const FILE = "pty.node";

let native: NativePty | undefined;

export function openPty(columns: number, rows: number): Pty {
  const { master, slave, pty } = load().open(columns, rows);
  // This descriptor is non-blocking, which a program's must not be. The program opens its own by name.
  closeSync(slave);
  return { masterFd: master, slavePath: pty };
}

export function resizePty(fd: number, columns: number, rows: number): void {
  load().resize(fd, columns, rows);
}

function load(): NativePty {
  native ??= tryLoad(`${dirname(process.argv[1] ?? "")}/${FILE}`);
  return native;
}

function tryLoad(path: string): NativePty {
  const holder = { exports: {} };
  try {
    if (!existsSync(path)) throw new Error(`${path} is missing`);
    process.dlopen(holder, path);
  } catch (error) {
    throw noTerminals(`a terminal (${(error as Error).message.split("\n", 1)[0]})`);
  }
  return holder.exports as NativePty;
}

export function noTerminals(neededBy: string): SandlotError {
  return new SandlotError("capability_missing", { backend: "sandboxd", capability: "terminals", neededBy });
}
