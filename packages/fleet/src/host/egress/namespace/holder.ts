/**
 * The network namespace of one sandbox, held open and changed from outside.
 *
 * It is created before the sandbox, which starts in it and keeps what it finds there (`bwrap --share-net` behind
 * `enterNamespace`); or it is that of a running sandbox. The holder is `ip -batch`: it reads commands from its stdin
 * and ends when that pipe closes, so it never outlives this process. The namespace lives as long as the sandbox.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readlinkSync } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import type { World } from "../../../world/world.ts";
import { enterNamespace, makeNamespace } from "./commands.ts";

const START_TIMEOUT_MS = 10_000;
const LOOK_MS = 5;

export class NamespaceHolder {
  /** The holder's process: entering its namespace enters the sandbox's. */
  readonly pid: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, pid: number) {
    this.#child = child;
    this.pid = pid;
  }

  /** `within`: a process whose namespace is used. Without it, a new one is created. */
  static async start(world: World, within?: { readonly pid: number } | undefined): Promise<NamespaceHolder> {
    const [program = "", ...args] = [...(within ? enterNamespace(within.pid) : makeNamespace()), ...HOLD];
    const child = spawn(program, args, { stdio: ["pipe", "ignore", "ignore"], cwd: "/" });
    // The pipe may be closed already; the process's end is noticed elsewhere.
    child.stdin?.on("error", () => {});
    child.on("error", () => {});
    if (child.pid === undefined) throw failedNamespace(`${program} could not be started`);
    const holder = new NamespaceHolder(child, child.pid);
    try {
      await until(world, START_TIMEOUT_MS, "a network namespace", () => isElsewhere(holder.pid));
      holder.tell(["link set lo up"]);
      return holder;
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  /** Sends lines to `ip`. It runs them in order, and not before this returns. */
  tell(lines: readonly string[]): void {
    if (lines.length > 0) this.#child.stdin?.write(`${lines.join("\n")}\n`);
  }

  async ended(): Promise<void> {
    if (!hasEnded(this.#child)) await once(this.#child, "exit");
  }

  async close(): Promise<void> {
    this.#child.stdin?.end();
    await this.ended();
  }
}

export function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

/** Polls, because the kernel does not announce changes that another process made. */
export async function until(world: World, timeoutMs: number, what: string, isSo: () => boolean): Promise<void> {
  const deadlineMs = world.monotonicMs() + timeoutMs;
  while (!isSo()) {
    if (world.monotonicMs() > deadlineMs) throw failedNamespace(`${what} did not come about`);
    await new Promise<void>((resolve) => world.timer(LOOK_MS, resolve));
  }
}

export function failedNamespace(problem: string): SandlotError {
  return new SandlotError("create_failed", { backend: "egress", problem });
}

const HOLD = ["ip", "-force", "-batch", "-"];

/** Whether the process has left our network namespace. A process that has ended never will. */
function isElsewhere(pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`) !== readlinkSync("/proc/self/ns/net");
  } catch (error) {
    throw failedNamespace(`no network namespace can be made by this user (${(error as Error).message})`);
  }
}
