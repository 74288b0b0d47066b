/**
 * Faults of a sandbox's processes from outside, while it is leased and while it is parked: its first process and its
 * parent are killed. Running commands report it, the next use works, and the workspace is unchanged.
 */

import type { LocalEnvironment } from "../stage/local-environment.ts";

const TOLD_MS = 15_000;
const WHICH = ["init", "outer"] as const;

export async function processFaults(environment: LocalEnvironment, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    for (const which of WHICH) {
      await environment.fault(`a leased sandbox's ${which} killed`, () =>
        underLease(environment, which, `leased-${round}`),
      );
      await environment.fault(`a parked sandbox's ${which} killed`, () =>
        whileParked(environment, which, `parked-${round}`),
      );
    }
  }
}

async function underLease(
  environment: LocalEnvironment,
  which: (typeof WHICH)[number],
  thread: string,
): Promise<number> {
  await using lease = await environment.fleet.acquire({ thread });
  const { generation } = lease;
  await lease.sandbox.exec("echo mine > note");
  const running = lease.sandbox.exec("sleep 30; echo through").then(
    () => "went on",
    (error: unknown) => (error as { readonly code?: string }).code,
  );
  process.kill((await environment.processesIn(thread))[which], "SIGKILL");
  const since = performance.now();
  const told = await environment.settles("a command under way", running, TOLD_MS);
  if (told !== "sandbox_lost") environment.tally.violated(`a command under way ended with ${told}`);
  const { ms } = await environment.used(thread, since, "mine", lease);
  if (lease.generation === generation) environment.tally.violated("the generation is the same");
  await lease.release();
  await environment.end(thread);
  return ms;
}

async function whileParked(
  environment: LocalEnvironment,
  which: (typeof WHICH)[number],
  thread: string,
): Promise<number> {
  const lease = await environment.fleet.acquire({ thread });
  await lease.sandbox.exec("echo mine > note");
  await lease.release();
  process.kill((await environment.processesIn(thread))[which], "SIGKILL");
  const usableMs = await environment.usable(thread, performance.now(), "mine");
  await environment.end(thread);
  return usableMs;
}
