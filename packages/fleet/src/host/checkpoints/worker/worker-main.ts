/**
 * The process that walks, compares, restores and collects: one job at a time, with synchronous calls. It may be killed
 * at any moment: every job is repaired by repeating it. It ends with the process that started it.
 */

import { systemWorld } from "../../../world/system-world.ts";
import { DiskWorkspaces } from "../../workspaces/disk-workspaces.ts";
import type { Context } from "../context.ts";
import { jobs, type Outlet } from "./jobs.ts";
import { type FromWorker, sendableError, type ToWorker, type WorkerSettings } from "./messages.ts";

const PROGRESS_EVERY_MS = 100;
const world = systemWorld();
let context: Context | null = null;
let wanted: (() => void) | null = null;
let saidAt = Number.NEGATIVE_INFINITY;

function send(message: FromWorker): void {
  // A failure means that the fleet is gone; `disconnect` follows.
  process.send?.(message, undefined, undefined, () => {});
}

function makeContext({ root, account, isPassable, options }: WorkerSettings): Context {
  const workspaces = new DiskWorkspaces({ root, account, isPassable, world });
  const onProgress: Context["onProgress"] = (progress) => {
    const now = world.monotonicMs();
    if (now - saidAt < PROGRESS_EVERY_MS) return;
    saidAt = now;
    send({ progress });
  };
  return { root, options, world, workspaces, onProgress };
}

const outlet: Outlet = {
  problem: (problem) => send({ problem }),
  changes: (changes) => send({ changes }),
  /** One piece is on its way at a time. */
  piece: (piece) =>
    new Promise((resolve) => {
      wanted = resolve;
      send({ piece });
    }),
};

async function run(name: keyof typeof jobs, args: readonly unknown[]): Promise<void> {
  try {
    if (context === null) throw new Error("the worker has no settings");
    const work = jobs[name] as (context: Context, outlet: Outlet, ...args: readonly unknown[]) => Promise<unknown>;
    send({ result: (await work(context, outlet, ...args)) ?? null });
  } catch (error) {
    send(sendableError(error));
  }
}

process.title = "sandlot-checkpoints";
// Modes of restored files are exactly those that were kept.
process.umask(0);
process.on("message", (message: ToWorker) => {
  if ("settings" in message) context = makeContext(message.settings);
  else if ("job" in message) void run(message.job, message.args);
  else {
    wanted?.();
    wanted = null;
  }
});
process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
// Signals for the fleet's group are the fleet's to handle.
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => {});
send({ ready: true });
