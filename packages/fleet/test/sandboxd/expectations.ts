/** Small assertions for the tests of the daemon. */

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { SandlotError } from "@sandlot/contract";

/** The code with which a call fails. */
export async function code(call: Promise<unknown>): Promise<string> {
  try {
    await call;
  } catch (error) {
    return error instanceof SandlotError ? error.code : `not a SandlotError: ${String(error)}`;
  }
  return "no error";
}

/** Whether a process runs; a zombie does not. */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false;
  }
}

export async function eventually(isSo: () => boolean | Promise<boolean>, timeoutMs = 10_000): Promise<void> {
  for (const deadline = performance.now() + timeoutMs; !(await isSo()); await sleep(10)) {
    if (performance.now() > deadline) throw new Error(`not so after ${timeoutMs} ms: ${isSo.toString()}`);
  }
}
