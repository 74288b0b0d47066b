/**
 * Faults of a sandbox's processes from outside, while it is leased and while it is parked: its first process and its
 * parent are killed. Running commands report it, the next use works, and the workspace is unchanged.
 */

import type { LocalYard } from "../stage/local-yard.ts";

const TOLD_MS = 15_000;
const WHICH = ["init", "outer"] as const;

export async function processDeeds(yard: LocalYard, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    for (const which of WHICH) {
      await yard.deed(`a leased sandbox's ${which} killed`, () => underLease(yard, which, `leased-${round}`));
      await yard.deed(`a parked sandbox's ${which} killed`, () => whileParked(yard, which, `parked-${round}`));
    }
  }
}

async function underLease(yard: LocalYard, which: (typeof WHICH)[number], thread: string): Promise<number> {
  await using lease = await yard.fleet.acquire({ thread });
  const { generation } = lease;
  await lease.sandbox.exec("echo mine > note");
  const running = lease.sandbox.exec("sleep 30; echo through").then(
    () => "went on",
    (error: unknown) => (error as { readonly code?: string }).code,
  );
  process.kill((await yard.processesIn(thread))[which], "SIGKILL");
  const since = performance.now();
  const told = await yard.settles("a command under way", running, TOLD_MS);
  if (told !== "sandbox_lost") yard.tally.violated(`a command under way ended with ${told}`);
  const { ms } = await yard.used(thread, since, "mine", lease);
  if (lease.generation === generation) yard.tally.violated("the generation is the same");
  await lease.release();
  await yard.end(thread);
  return ms;
}

async function whileParked(yard: LocalYard, which: (typeof WHICH)[number], thread: string): Promise<number> {
  const lease = await yard.fleet.acquire({ thread });
  await lease.sandbox.exec("echo mine > note");
  await lease.release();
  process.kill((await yard.processesIn(thread))[which], "SIGKILL");
  const usableMs = await yard.usable(thread, performance.now(), "mine");
  await yard.end(thread);
  return usableMs;
}
