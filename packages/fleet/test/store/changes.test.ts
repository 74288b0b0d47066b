/**
 * How soon waiting callers are woken, in virtual milliseconds. The poll heals a lost wake-up a quarter of a second
 * later, so that only the time shows it.
 */

import { describe, expect, test } from "vitest";
import { Changes } from "../../src/store/changes.ts";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import { newStage } from "../support/stage.ts";
import { VirtualTime, watched } from "../support/virtual-time.ts";

/** Well below the shortest poll, 187 ms; a caller that has long waited pauses for 64 ms first. */
const SOON_MS = 100;

describe("a waiter", () => {
  const setUp = () => {
    const time = new VirtualTime();
    const world = time.newWorld();
    return { time, changes: new Changes(world, new MemoryStore(newMemoryTables(world))) };
  };
  const signal = new AbortController().signal;

  test("is woken by a hint a few milliseconds later", async () => {
    const { time, changes } = setUp();
    const waiting = changes.after(changes.count(), signal);
    await time.advance(50);
    changes.hint();
    const hintedAt = time.now;
    await time.until(waiting);
    expect(time.now - hintedAt).toBeLessThanOrEqual(5);
  });

  test("that looked before the hint came does not wait for the poll", async () => {
    const { time, changes } = setUp();
    const count = changes.count();
    changes.hint();
    const startedAt = time.now;
    await time.until(changes.after(count, signal));
    expect(time.now - startedAt).toBeLessThanOrEqual(5);
  });

  test("that has waited for long is woken within its pause", async () => {
    const { time, changes } = setUp();
    const waiting = changes.after(changes.count(), signal, 10);
    await time.advance(10);
    changes.hint();
    const hintedAt = time.now;
    await time.until(waiting);
    expect(time.now - hintedAt).toBeLessThanOrEqual(70);
  });
});

describe("a waiter on a shared store", () => {
  const signal = new AbortController().signal;

  test("looks at most once in two seconds without a hint, and soon after one", async () => {
    const time = new VirtualTime();
    const world = time.newWorld();
    const changes = new Changes(world, new MemoryStore(newMemoryTables(world, true)));
    const begunAt = time.now;
    const waiting = watched(changes.after(changes.count(), signal));
    await time.advance(1_990);
    expect(waiting.state).toBe("pending");
    await time.until(waiting.promise);
    expect(time.now - begunAt).toBeLessThan(3_400);
    const hinted = changes.after(changes.count(), signal);
    changes.hint();
    const hintedAt = time.now;
    await time.until(hinted);
    expect(time.now - hintedAt).toBeLessThanOrEqual(5);
  });

  test("is not woken more often than once a second by changes that do not help it", async () => {
    const time = new VirtualTime();
    const world = time.newWorld();
    const changes = new Changes(world, new MemoryStore(newMemoryTables(world, true)));
    let looks = 0;
    const ended = new AbortController();
    const waiter = (async () => {
      for (let rounds = 1; !ended.signal.aborted; rounds += 1) {
        looks += 1;
        await changes.after(changes.count(), ended.signal, rounds).catch(() => undefined);
      }
    })();
    for (let ms = 0; ms < 60_000; ms += 20) {
      changes.hint();
      await time.advance(20);
    }
    ended.abort();
    await time.until(waiter);
    // The first ones come faster, so that a short wait stays short.
    expect(looks).toBeLessThan(72);
  });
});

describe("a caller", () => {
  test("that waits for a peer's create has its lease soon after it is ready", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const gate = a.backend.hang("create");
    const first = watched(a.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    const second = watched(b.fleet.acquire({ thread: "t1" }));
    await stage.advance(5_000);
    gate.open();
    const openedAt = stage.time.now;
    await (await stage.until(second.promise)).release();
    expect(stage.time.now - openedAt).toBeLessThan(SOON_MS);
    await (await stage.until(first.promise)).release();
  });

  test("that waits for a stop has its lease soon after it is confirmed", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    const gate = a.backend.hang("destroy");
    const stopping = watched(a.fleet.destroy({ thread: "t1" }));
    await stage.settle();
    const acquiring = watched(b.fleet.acquire({ thread: "t1" }));
    await stage.advance(5_000);
    gate.open();
    const openedAt = stage.time.now;
    await (await stage.until(acquiring.promise)).release();
    expect(stage.time.now - openedAt).toBeLessThan(SOON_MS);
    await stage.until(stopping.promise);
  });

  test("that waits for room at another instance has it soon after it is made", async () => {
    const stage = newStage({ limits: { max: 1, queueMax: 4, onFull: "wait" } });
    const [a, b] = [await stage.open(), await stage.open()];
    const held = await a.fleet.acquire({ thread: "t1" });
    const acquiring = watched(b.fleet.acquire({ thread: "t2" }));
    await stage.advance(5_000);
    await stage.until(held.release());
    const releasedAt = stage.time.now;
    await (await stage.until(acquiring.promise)).release();
    // The eviction and the create, each after a look.
    expect(stage.time.now - releasedAt).toBeLessThan(2 * SOON_MS);
  });
});
