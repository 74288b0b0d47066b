/** What a fleet with two gateways does while the disk of its store's server is full, and afterwards. */

import { isSandlotError, type SandlotError, type ThreadId } from "@sandlot/contract";
import { expect } from "vitest";
import type { Store } from "../../src/store/store.ts";
import type { World } from "../../src/world/world.ts";
import { openTwoGateways, type TwoGateways } from "../gateway/support/two-gateways.ts";
import type { SmallDisk } from "../support/small-disk.ts";

/** More sandboxes than a disk without a free page takes records. */
const THREADS_MAX = 400;
const LIMIT_MS = 60_000;
const JOURNAL = "/mnt/user-data/workspace/journal";
/** A step gets two seconds, on a machine that runs other tests as well. */
const LIFETIME_MS = 6_000;
/** Longer than a session lives. */
const FULL_MS = 7_000;
const PAUSE_MS = 20;

export interface ServerOnDisk {
  readonly disk: SmallDisk;
  readonly openStore: (world: World, timeoutMs: number) => Promise<Store>;
  /** What the error says. */
  readonly problem: RegExp;
  /** As a supervisor does, where the server has ended. */
  revive?(): Promise<void>;
}

export async function useFullDisk({ disk, openStore, problem, revive }: ServerOnDisk): Promise<void> {
  const two = await openTwoGateways({
    openStore,
    lifetimeMs: LIFETIME_MS,
    fleet: { limits: { max: THREADS_MAX + 10 } },
  });
  try {
    const held = await holdThread(two);
    const acknowledged = new Map<string, string>();
    disk.fill();
    const fullAt = performance.now();
    const refused = await refusal(two, acknowledged, problem);
    expect(refused).toMatchObject({ code: "store_unavailable", retryable: true });
    expect(refused.details).toMatchObject({ retryAfterMs: expect.any(Number) });
    // The lease that is held goes on, for longer than a session lives.
    do {
      await held.write();
      await pause(PAUSE_MS);
    } while (performance.now() < fullAt + FULL_MS);
    disk.free();
    await revive?.();
    await untilAcquired(two, "after");
    await held.write();
    await held.verify();
    const records = new Map((await two.b.fleet.list()).map(({ thread, sandboxId }) => [thread, sandboxId]));
    for (const [thread, sandboxId] of acknowledged) expect(records.get(thread as ThreadId)).toBe(sandboxId);
  } finally {
    disk.free();
    await revive?.();
    await two.done();
  }
}

/** A lease at gateway A. Every answered write must be in the journal at the end. */
async function holdThread({ a, b }: TwoGateways) {
  const lease = await a.fleet.acquire({ thread: "held" });
  const lost: string[] = [];
  lease.onLost(({ reason }) => lost.push(reason));
  const lines: string[] = [];
  const write = async () => {
    const line = `line-${lines.length}`;
    await lease.sandbox.exec(`echo ${line} >> ${JOURNAL}`);
    lines.push(line);
  };
  await write();
  return {
    write,
    async verify() {
      expect(lost).toEqual([]);
      await using other = await b.fleet.acquire({ thread: "held" });
      expect(other.sandbox.id).toBe(lease.sandbox.id);
      expect((await other.sandbox.files.readText(JOURNAL)).trim().split("\n")).toEqual(lines);
      await lease.release();
    },
  };
}

/** Acquires new threads until one is refused for the disk. */
async function refusal(two: TwoGateways, acknowledged: Map<string, string>, problem: RegExp): Promise<SandlotError> {
  const seen = new Set<string>();
  const until = performance.now() + LIMIT_MS;
  for (let number = 0; number < THREADS_MAX && performance.now() < until; number += 1) {
    const thread = `t${number}`;
    try {
      const lease = await two.b.fleet.acquire({ thread });
      acknowledged.set(thread, lease.sandbox.id);
      await lease.release();
    } catch (error) {
      if (!isSandlotError(error)) throw error;
      if (problem.test(error.message)) return error;
      seen.add(error.message);
    }
  }
  throw new Error(`${acknowledged.size} acquires, and none was refused for the disk: ${[...seen].join("; ")}`);
}

async function untilAcquired({ b }: TwoGateways, thread: string): Promise<void> {
  const until = performance.now() + LIMIT_MS;
  for (;;) {
    try {
      await (await b.fleet.acquire({ thread })).release();
      return;
    } catch (error) {
      if (performance.now() > until) throw error;
      await pause(100);
    }
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
