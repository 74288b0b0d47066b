/**
 * A process of the fleet that is going to be killed. Says what it is about to do, one word a line, and does it.
 *
 *   node --conditions=sandlot-source fleet-process.ts '<config>'       stdin: the thread to work in, once it is "open"
 */

import { flushCompileCache } from "node:module";
import { createInterface } from "node:readline";
import { openFleet } from "../../packages/fleet/src/open-fleet.ts";

/** A pipe is written to before this returns, so that whoever kills us knows what we were at. */
function say(word: string): void {
  process.stdout.write(`${word}\n`);
}

const fleet = await openFleet(JSON.parse(process.argv[2] ?? "{}"));
// A process that is killed writes no cache, and the next ones would have to compile everything again.
flushCompileCache();
say("open");
for await (const thread of createInterface({ input: process.stdin })) {
  for (;;) await turn(thread);
}
// Whoever started us is gone.
process.exit(0);

async function turn(thread: string): Promise<void> {
  say("create");
  const lease = await fleet.acquire({ thread });
  say("lease");
  await lease.sandbox.exec("echo written > note");
  say("wrote");
  for (let count = 0; count < 5; count += 1) await lease.sandbox.exec("sleep 0.02");
  say("release");
  await lease.release();
  say("released");
  say("stop");
  // Refused while somebody else waits for it, which is as good.
  await fleet.destroy({ thread }).catch(() => say("refused"));
  say("stopped");
}
