/** Kills a sandbox of a gateway process on this machine. */

import { readdirSync, readFileSync } from "node:fs";
import { expect } from "vitest";
import type { Caller } from "../../gateway/support/stage.ts";

/** From the host: a program inside is found by its argument, and the outermost of what runs the sandbox above it. */
export async function killSandbox(caller: Caller, thread: string): Promise<void> {
  const mark = String(987_654_000 + Math.floor(Math.random() * 1_000));
  const json = { command: `exec sleep ${mark}`, background: true };
  await caller.ask(202, "POST", `/v1/threads/${thread}/exec`, { json });
  const isMarked = (pid: string) => argumentsOf(pid) === `sleep\0${mark}\0`;
  const find = () => readdirSync("/proc").find((pid) => /^\d+$/.test(pid) && isMarked(pid));
  await expect.poll(find).toBeDefined();
  let outermost: number | null = null;
  for (let pid = parentOf(find() ?? "1"); pid > 1; pid = parentOf(String(pid)))
    if (argumentsOf(String(pid)).startsWith("bwrap\0")) outermost = pid;
  expect(outermost).not.toBeNull();
  process.kill(Number(outermost), "SIGKILL");
}

function parentOf(pid: string): number {
  return Number(/^PPid:\t(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0);
}

function argumentsOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}
