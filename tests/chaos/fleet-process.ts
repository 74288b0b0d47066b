/**
 * A process of the fleet that will be killed. Prints each step before it does it, one word a line.
 *
 *   node --conditions=sandlot-source fleet-process.ts '<config>'       stdin: an `Order`, once it is "open"
 *
 * If the order names a word and a delay, another thread of the process sends the signal: from outside a stage of a
 * millisecond could not be hit, and from the working thread only where it waits.
 */

import { flushCompileCache } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { isSandlotError } from "@sandlot/contract";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { openFleet } from "../../packages/fleet/src/open-fleet.ts";

export interface Order {
  readonly thread: string;
  readonly blueprint: string;
  /** Run in the sandbox at once; `GENERATION` stands for the lease's. */
  readonly writer: string | null;
  readonly kill: { readonly after: string; readonly ms: number } | null;
}

/** Microseconds until the signal, once it is due. */
const due = new Int32Array(new SharedArrayBuffer(8));
const KILLER = `
  const due = require("node:worker_threads").workerData;
  Atomics.wait(due, 0, 0);
  Atomics.wait(due, 1, 0, due[0] / 1000);
  process.kill(process.pid, "SIGKILL");
`;
new Worker(KILLER, { eval: true, workerData: due }).unref();
const REST_MS = 50;
const OPEN_ATTEMPTS = 5;
let kill: Order["kill"] = null;

/** A pipe is written before this returns, so that the parent knows the last step when we end. */
function say(word: string): void {
  process.stdout.write(`${word}\n`);
  if (word !== kill?.after) return;
  Atomics.store(due, 0, Math.max(1, Math.round(kill.ms * 1_000)));
  Atomics.notify(due, 0);
}

const fleet = await opened();
// A killed process writes no cache, and the next ones would have to compile everything again.
flushCompileCache();
say("open");
for await (const line of createInterface({ input: process.stdin })) {
  const order: Order = JSON.parse(line);
  kill = order.kill;
  for (;;) {
    try {
      await turn(order);
    } catch (error) {
      // Refused, as on a busy machine: printed, and retried. Anything else is a bug.
      if (!isSandlotError(error) || error.code === "internal") throw error;
      say("refused");
      await sleep(REST_MS);
    }
  }
}
// The parent is gone.
process.exit(0);

/** A store or an engine on the network may be busy: that is retried, as an operator's supervisor would. */
async function opened(): Promise<Fleet> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await openFleet(JSON.parse(process.argv[2] ?? "{}"));
    } catch (error) {
      if (!isSandlotError(error) || !error.retryable || attempt >= OPEN_ATTEMPTS) throw error;
      await sleep(REST_MS);
    }
  }
}

async function turn({ thread, blueprint, writer }: Order): Promise<void> {
  const blanks = blueprint === "pooled" ? (await fleet.list()).filter(({ state }) => state === "blank") : [];
  say(blanks.length > 0 ? "bind" : "create");
  const lease = await fleet.acquire({ thread, blueprint });
  say("lease");
  if (writer !== null) await lease.sandbox.exec(writer.replace("GENERATION", String(lease.generation)));
  await lease.sandbox.exec("echo written > note");
  say("wrote");
  for (let count = 0; count < 5; count += 1) await lease.sandbox.exec("sleep 0.02");
  say("release");
  await lease.release();
  say("released");
  say("stop");
  // Refused while another caller waits for it, which is equally good.
  await fleet.destroy({ thread });
  say("stopped");
}
