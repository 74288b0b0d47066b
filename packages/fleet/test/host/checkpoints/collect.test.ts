/** Collections beside takers: they mark and copy without the store's lock, and hold it only to remove something. */

import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { collect } from "../../../src/host/checkpoints/collect/collect.ts";
import { storePathsOf } from "../../../src/host/checkpoints/layout.ts";
import { seam } from "../../../src/host/checkpoints/store/calls.ts";
import { openDatabase } from "../../../src/world/sqlite-driver.ts";
import { contextAt } from "./context.ts";
import { fill, Ground, never } from "./ground.ts";

/** A store with packs that a collection writes anew: half of what each checkpoint has is needed by a later one. */
async function stored(count = 6) {
  const ground = new Ground();
  onTestFinished(() => ground[Symbol.asyncDispose]());
  onTestFinished(() => {
    seam.before = null;
  });
  const owner = ground.owner();
  const path = await ground.home(owner);
  fill(path, 20);
  const ids: string[] = [];
  for (let round = 0; round < count; round++) {
    writeFileSync(join(path, "workspace", "changing"), `${round}`.repeat(10_000));
    ids.push(await ground.taken(owner));
  }
  for (const id of ids.slice(0, -1)) await ground.checkpoints.remove(owner, id);
  return { ground, owner, path, store: storePathsOf(ground.root, owner.user) };
}

function isHeld(lock: string): boolean {
  const database = openDatabase(lock);
  try {
    database.exec("PRAGMA busy_timeout = 0; BEGIN; SELECT count(*) FROM sqlite_master; ROLLBACK");
    return false;
  } catch {
    return true;
  } finally {
    database.close();
  }
}

async function collected(ground: Ground): Promise<void> {
  const problems: string[] = [];
  await collect(contextAt(ground.root), (problem) => problems.push(problem));
  expect(problems).toEqual([]);
}

test("reads, copies and synchronizes nothing while takers have to wait", async () => {
  const { ground, owner, store } = await stored();
  const during = { held: new Set<string>(), free: new Set<string>() };
  let isLooking = false;
  seam.before = (name) => {
    if (isLooking) return;
    isLooking = true;
    (isHeld(store.lock) ? during.held : during.free).add(name);
    isLooking = false;
  };
  await collected(ground);
  seam.before = null;
  expect([...during.free]).toEqual(expect.arrayContaining(["read", "write", "fsync", "rename"]));
  for (const name of ["write", "fsync", "rename"]) expect(during.held.has(name), name).toBe(false);
  expect(during.held.has("unlink")).toBe(true);
  expect(await ground.checkpoints.verify(owner, null, never)).toEqual({ checked: 1, damaged: [] });
});

test("a taker that comes while it marks or copies is done first, and loses nothing by it", async () => {
  const { ground, owner, path } = await stored();
  // What the new checkpoint needs, no record names when marking begins.
  writeFileSync(join(path, "workspace", "changing"), "0".repeat(10_000));
  const steps: string[] = [];
  const context = contextAt(ground.root);
  let taking: Promise<unknown> | null = null;
  let now = 0;
  // Every slice of time is over at once, and what waits goes on when the taker is done.
  const world: typeof context.world = Object.assign(Object.create(context.world), {
    monotonicMs: () => {
      now += 60;
      return now;
    },
    timer: (_ms: number, fire: () => void) => {
      taking ??= ground.taken(owner).then(() => steps.push("taken"));
      void taking.then(fire);
      return { cancel: () => {} };
    },
  });
  await collect({ ...context, world }, (problem) => steps.push(problem)).then(() => steps.push("collected"));
  expect(steps).toEqual(["taken", "collected"]);
  expect(await ground.checkpoints.verify(owner, null, never)).toEqual({ checked: 2, damaged: [] });
  // Another one finishes what the first may have left.
  await collected(ground);
  expect(await ground.checkpoints.verify(owner, null, never)).toEqual({ checked: 2, damaged: [] });
});

test("one collects at a time", async () => {
  const { ground, store } = await stored(2);
  const other = openDatabase(store.collector);
  other.exec("BEGIN EXCLUSIVE");
  let unlinked = 0;
  seam.before = (name) => {
    if (name === "unlink") unlinked += 1;
  };
  await collected(ground);
  expect(unlinked).toBe(0);
  other.close();
  await collected(ground);
  seam.before = null;
  expect(unlinked).toBeGreaterThan(0);
  rmSync(store.collector);
});
