/**
 * Starts a sandbox's processes.
 *
 *   spawn ─▶ status line (the init's pid) ─▶ recorded on disk ─▶ configuration goes in ─▶ ready line
 *
 * Invariants
 * - The configuration goes in only after the init's process is on disk. Without it the daemon ends at once, and the
 *   init with it. So a fleet that dies in between leaves nothing unrecorded running.
 * - No write during the start fails when this process dies: bubblewrap would end half-way, and its init would wait for
 *   it forever.
 * - The processes are detached: their own session, no terminal, no descriptor but the ones listed here.
 * - This function ends the processes when a later step fails.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import type { Readable, Stream, Writable } from "node:stream";
import type { DaemonConfig } from "@sandlot/contract";
import { configText, SUPERVISED_DESCRIPTORS } from "@sandlot/sandboxd";
import { identify, killProcess, type ProcessId, processEnd } from "../../../host/process-table.ts";
import { readReadyLine } from "../../../sandboxd/index.ts";
import { abortable } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { ProcessRecord } from "../objects/object-store.ts";
import type { StartPlan } from "./engine.ts";
import { listenToPipe, openBothEnds } from "./named-pipe.ts";
import { StartProblem } from "./start-problem.ts";

/** The descriptors of the started process. The supervisor makes number 6 itself. */
export const FD = { ...SUPERVISED_DESCRIPTORS, pulse: 7, status: 8, seccomp: 9, firstFile: 10 } as const;

export interface Start {
  readonly plan: StartPlan;
  readonly config: DaemonConfig;
  readonly listen: number;
  readonly pulse: number;
  /** A named pipe for bubblewrap's status. */
  readonly statusPath: string;
  /** Descriptors that the process would inherit by accident. */
  readonly strays: readonly number[];
  /** Records the process. */
  readonly started: (process: ProcessRecord) => void;
  readonly world: World;
}

type Stdio = "ignore" | "pipe" | number;

export async function start(wanted: Start, signal: AbortSignal): Promise<ProcessRecord> {
  const { plan, world } = wanted;
  const status = openBothEnds(wanted.statusPath);
  const told = listenToPipe(wanted.statusPath);
  const child = spawnDetached(wanted, status);
  closeSync(status);
  const exit = exitOf(child);
  let record: ProcessRecord | null = null;
  try {
    const isChild = plan.init === "child" && child.pid !== undefined;
    const init = await abortable(Promise.race([isChild ? existing(child.pid) : initOf(told), exit]), signal);
    record = { init, monitor: isChild || child.pid === undefined ? null : (identify(child.pid) ?? null) };
    wanted.started(record);
    signal.throwIfAborted();
    (pipeOf(child, FD.config) as Writable).end(configText(wanted.config));
    await Promise.race([ready(child, exit, signal), exit]);
    return record;
  } catch (error) {
    letGo(child);
    await end(child, record?.init ?? null, world);
    throw error;
  } finally {
    letGo(child);
    told.destroy();
  }
}

function spawnDetached({ plan, listen, pulse, strays }: Start, status: number): ChildProcess {
  const [program = "", ...args] = plan.command;
  const nothing = openSync("/dev/null", "r+");
  // The daemon itself closes descriptors that it does not know; the pulse stays open as its output, which it does not
  // use.
  const output = plan.init === "child" ? pulse : "ignore";
  const stdio: Stdio[] = ["ignore", output, "pipe", "pipe", "pipe", listen];
  for (let fd = stdio.length; fd < FD.firstFile + plan.files.length; fd++) stdio[fd] = "ignore";
  for (const fd of strays) stdio[fd] = nothing;
  stdio[FD.pulse] = pulse;
  stdio[FD.status] = status;
  if (plan.seccomp !== null) stdio[FD.seccomp] = "pipe";
  for (const [index, fd] of plan.files.entries()) stdio[FD.firstFile + index] = fd;
  // Holes would be inherited, too.
  const complete = Array.from(stdio, (entry) => entry ?? "ignore");
  try {
    const child = spawn(program, args, {
      cwd: "/",
      detached: true,
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", ...plan.environment },
      stdio: complete,
    });
    for (const stream of child.stdio) stream?.on("error", () => {});
    if (plan.seccomp !== null) (pipeOf(child, FD.seccomp) as Writable).end(plan.seccomp);
    child.unref();
    return child;
  } finally {
    closeSync(nothing);
  }
}

/** A missing ready line means that its writer has ended; the message of that end is more useful. */
async function ready(child: ChildProcess, exit: Promise<never>, signal: AbortSignal): Promise<void> {
  try {
    await readReadyLine(pipeOf(child, FD.ready) as Readable, signal);
  } catch (error) {
    if (!signal.aborted) await abortable(exit, signal);
    throw error;
  }
}

function pipeOf(child: ChildProcess, fd: number): Stream | undefined {
  return (child.stdio as readonly (Stream | null | undefined)[])[fd] ?? undefined;
}

async function existing(pid: number | undefined): Promise<ProcessId> {
  const process = pid === undefined ? null : identify(pid);
  if (process === null || process === undefined) throw new StartProblem("its first process ended at once");
  return process;
}

/** The init's process, from bubblewrap's status. Never settles without one; then the exit states the reason. */
function initOf(told: Readable): Promise<ProcessId> {
  return new Promise((resolve, reject) => {
    let text = "";
    told.on("data", (chunk: Buffer) => {
      text = (text + chunk.toString("latin1")).slice(-SAID_MAX_CHARACTERS);
      const pid = /"child-pid": (\d+)/.exec(text)?.[1];
      if (pid === undefined) return;
      const init = identify(Number(pid));
      if (init === null || init === undefined) reject(new StartProblem("its first process ended at once"));
      else resolve(init);
    });
  });
}

/** Rejects when the process outside has ended, with its output. */
function exitOf(child: ChildProcess): Promise<never> {
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(-SAID_MAX_CHARACTERS);
  });
  const exit = new Promise<never>((_, reject) => {
    child.once("error", (error) => reject(new StartProblem(error.message, { cause: error })));
    child.once("exit", (code, name) => {
      const how = code === null ? `was ended by ${name}` : `ended with ${code}`;
      // Its last output may still be on its way.
      setImmediate(() => reject(new StartProblem(said.trim() === "" ? `it ${how} before it was ready` : said.trim())));
    });
  });
  exit.catch(() => {});
  return exit;
}

const SAID_MAX_CHARACTERS = 4_096;

/** Closes our ends. The process itself goes on. */
function letGo(child: ChildProcess): void {
  for (const stream of child.stdio) stream?.destroy();
}

/**
 * Ends the started processes. Before its init is known it is left alone: a bubblewrap that is killed half-way leaves an
 * init that waits for it forever, but an init that starts finds no configuration, and stops.
 */
async function end(child: ChildProcess, init: ProcessId | null, world: World): Promise<void> {
  if (init === null) {
    const patience = world.timer(GIVE_UP_MS, () => child.kill("SIGKILL"));
    if (isRunning(child)) await new Promise((resolve) => child.once("exit", resolve));
    patience.cancel();
    return;
  }
  killProcess(init);
  await processEnd(init, world);
}

const GIVE_UP_MS = 5_000;

function isRunning({ pid, exitCode, signalCode }: ChildProcess): boolean {
  return pid !== undefined && exitCode === null && signalCode === null;
}
