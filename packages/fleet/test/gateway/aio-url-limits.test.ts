/** How many AIO URLs one user, and all users of a shared store, can have. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { AioLinks } from "../../src/gateway/previews/aio-links.ts";
import { PreviewLinks } from "../../src/gateway/previews/links.ts";
import type { ThreadKey } from "../../src/gateway/thread-key.ts";
import { ENTRIES_MAX } from "../../src/store/entries.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const URLS_MAX = 64;
const USER_URLS_MAX = 256;
const SWEEP_MAX = 100;
const TTL_MS = 60_000;

let home = "";
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "sandlot-aio-limits-"));
});
afterAll(() => rm(home, { recursive: true, force: true }));

const threadOf = (user: string, number: number) => ({ user, thread: `t${number}` }) as ThreadKey;

/** AIO URLs over entries, and a way to put many there at once. */
async function open() {
  const entries = new MemoryEntries();
  const world = systemWorld();
  const gateway = async () => AioLinks.open(home, await PreviewLinks.open(home, world, entries), world, entries);
  const [links, other] = [await gateway(), await gateway()];
  const count = async () => (await entries.list("aio/")).length;
  const plant = async (number: number, user: string, expiresAt: number) => {
    const body = JSON.stringify({ user, thread: "t", keyId: "k", hash: "0".repeat(64) });
    const expiry = expiresAt.toString(16).padStart(12, "0");
    for (let index = 0; index < number; index += 1)
      await entries.put(`aio/${"f".repeat(24)}${expiry}${index.toString(16).padStart(12, "0")}`, body, null);
  };
  return { links, other, entries, count, plant };
}

describe("AIO URLs in a shared store", () => {
  it("a user has so many, whatever the number of its threads, and another user is not limited by them", async () => {
    const { links, count } = await open();
    for (let number = 0; number < USER_URLS_MAX; number += 1)
      await links.create(threadOf("alice", number), "k", TTL_MS);
    await expect(links.create(threadOf("alice", USER_URLS_MAX), "k", TTL_MS)).rejects.toThrow(/alice has 256 AIO URLs/);
    await links.create(threadOf("bob", 0), "k", TTL_MS);
    expect(await count()).toBe(USER_URLS_MAX + 1);
    expect(await links.revoke(threadOf("alice", 0))).toBe(1);
    await links.create(threadOf("alice", 1), "k", TTL_MS);
  });

  it("requests that create URLs at once, at two gateways, stay within the limit of a thread", async () => {
    const { links, other, count } = await open();
    const asked = Array.from({ length: 3 * URLS_MAX }, (_, number) =>
      (number % 2 === 0 ? links : other).create(threadOf("alice", 0), "k", TTL_MS),
    );
    const made = (await Promise.allSettled(asked)).filter(({ status }) => status === "fulfilled");
    expect(await count()).toBe(made.length);
    expect(made.length).toBeLessThanOrEqual(URLS_MAX);
    // Gateways that go over the limit together take back one too many each, at most.
    expect(made.length).toBeGreaterThanOrEqual(URLS_MAX - 2);
  });

  it("all users together leave half of the entries free", async () => {
    const { links, count, plant } = await open();
    await plant(ENTRIES_MAX / 2 - 1, "others", Date.now() + TTL_MS);
    await links.create(threadOf("alice", 0), "k", TTL_MS);
    await expect(links.create(threadOf("bob", 0), "k", TTL_MS)).rejects.toThrow(/10000 AIO URLs already/);
    expect(await count()).toBe(ENTRIES_MAX / 2);
  });

  it("creating one removes a bounded number of expired ones", async () => {
    const { links, count, plant } = await open();
    await plant(2 * SWEEP_MAX + 50, "others", Date.now() - 1);
    const left: number[] = [];
    for (let number = 0; number < 3; number += 1) {
      await links.create(threadOf("alice", number), "k", TTL_MS);
      left.push(await count());
    }
    expect(left).toEqual([151, 52, 3]);
  });
});
