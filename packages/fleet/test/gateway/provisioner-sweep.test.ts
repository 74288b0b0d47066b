/** What is left of provisioned sandboxes that have ended, and a store that is slow. */

import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { FileTexts } from "../../src/gateway/named-texts/file-texts.ts";
import type { NamedTexts } from "../../src/gateway/named-texts/named-texts.ts";
import { SharedTexts } from "../../src/gateway/named-texts/shared-texts.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { type InnerAio, openInnerAio } from "./support/aio-backend.ts";
import { openStage, type Stage } from "./support/stage.ts";

const PATIENT = { timeout: 30_000 };
const NOTE = "/mnt/user-data/workspace/note";

/** Its clock can be set forward, and its long timers can be made short. */
class SteppedWorld {
  aheadMs = 0;
  hurry: (delayMs: number) => number = (delayMs) => delayMs;
  readonly world: World;

  constructor() {
    const system = systemWorld();
    this.world = {
      ...system,
      wallMs: () => system.wallMs() + this.aheadMs,
      timer: (delayMs, fire, options) => system.timer(this.hurry(delayMs), fire, options),
    };
  }
}

/** Its silence ends with `speak`, and then it answers what it was asked. */
class SlowStore extends MemoryStore {
  #silence: Promise<void> = Promise.resolve();
  speak: () => void = () => {};

  beSilent(): void {
    this.#silence = new Promise((resolve) => {
      this.speak = resolve;
    });
  }

  override async find(...asked: Parameters<MemoryStore["find"]>) {
    await this.#silence;
    return super.find(...asked);
  }
  override async take(...asked: Parameters<MemoryStore["take"]>) {
    await this.#silence;
    return super.take(...asked);
  }
  override async list(...asked: Parameters<MemoryStore["list"]>) {
    await this.#silence;
    return super.list(...asked);
  }
}

let inner: InnerAio;
let stepped: SteppedWorld;
let store: SlowStore;
let stage: Stage;

const open = async (): Promise<Stage> => {
  stage = await openStage({ enrich: inner.enrich, store, more: { world: stepped.world } });
  return stage;
};
const records = async () => (await readdir(join(stage.home, "provisioned"))).length;
const create = (sandbox_id: string) => stage.platform.ask(200, "POST", "/api/sandboxes", { json: { sandbox_id } });

beforeEach(async () => {
  inner = await openInnerAio();
  stepped = new SteppedWorld();
  store = new SlowStore(newMemoryTables(systemWorld()));
});
afterEach(async () => {
  store.speak();
  for (const { user, thread } of await stage.fleet.list())
    if (user !== null && thread !== null) await stage.fleet.destroy({ user, thread }, { force: true });
  await stage.done();
  await inner.close();
});

it("an ended sandbox leaves no record and no files, also where no client ever asks again", async () => {
  // An interval of ten minutes.
  stepped.hurry = (delayMs) => (delayMs === 600_000 ? 100 : delayMs);
  const { fleet } = await open();
  await create("gone");
  await create("here");
  await fleet.destroy({ user: "default", thread: "gone" }, { force: true });
  expect([await records(), await fleet.findThread({ user: "default", thread: "gone" })]).toMatchObject([2, {}]);
  stepped.aheadMs = 700_000;
  await expect.poll(records, PATIENT).toBe(1);
  expect(await fleet.findThread({ user: "default", thread: "gone" })).toBeNull();
  expect(await fleet.find({ user: "default", thread: "here" })).toMatchObject({ state: "leased" });
});

it.each([true, false])(
  "never takes what another client has made of the thread since; it is parked: %s",
  async (parked) => {
    const { fleet } = await open();
    const key = { user: "default", thread: "mine" };
    await create("mine");
    await fleet.destroy(key, { force: true });
    {
      await using lease = await fleet.acquire(key);
      await lease.sandbox.files.write(NOTE, "another client's");
    }
    if (!parked) await fleet.destroy(key);
    stepped.aheadMs = 700_000;
    await create("other");
    await expect.poll(records, PATIENT).toBe(1);
    if (parked) expect(await fleet.find(key)).toMatchObject({ state: "parked" });
    await using lease = await fleet.acquire({ ...key, existing: true });
    expect(await lease.sandbox.files.readText(NOTE)).toBe("another client's");
  },
);

it("answers within the client's time when the store does not", async () => {
  const { platform } = await open();
  await create("s");
  const asked: number[] = [];
  stepped.hurry = (delayMs) => {
    asked.push(delayMs);
    return delayMs === 5_000 || delayMs === 10_000 || delayMs === 25_000 ? delayMs / 50 : delayMs;
  };
  store.beSilent();
  const order = { json: { sandbox_id: "t" } };
  const calls = [
    platform.ask<{ detail: string }>(503, "GET", "/api/sandboxes/s"),
    platform.ask<{ detail: string }>(503, "GET", "/api/sandboxes"),
    platform.ask<{ detail: string }>(503, "DELETE", "/api/sandboxes/s"),
    platform.ask<{ detail: string }>(504, "POST", "/api/sandboxes", order),
  ];
  const details = (await Promise.all(calls)).map(({ detail }) => detail);
  expect(details).toEqual([
    expect.stringContaining("5000 ms"),
    expect.stringContaining("5000 ms"),
    expect.stringMatching(/^Partial cleanup: .*10000 ms/),
    expect.stringContaining("25000 ms"),
  ]);
});

it("removes a text that is meant, and none that was made since under its name", async () => {
  await open();
  const shared = new MemoryEntries();
  const files = () => FileTexts.open(join(stage.home, "texts"), /^[a-z]$/, stepped.world);
  const each: [NamedTexts, NamedTexts][] = [
    [await files(), await files()],
    [new SharedTexts(shared, "texts"), new SharedTexts(shared, "texts")],
  ];
  for (const [one, other] of each) {
    await one.create("a", "old");
    expect(await one.removeIf("a", (text) => text.trim() === "other")).toBe(false);
    expect((await one.read("a"))?.trim()).toBe("old");
    expect(await one.removeIf("b", () => true)).toBe(false);
    expect(await one.removeIf("a", (text) => text.trim() === "old")).toBe(true);
    expect([await one.read("a"), await one.names()]).toEqual([null, []]);
    // Many removers and makers at the same time: what is there at the end is the last one that was made.
    for (let round = 0; round < 50; round += 1) {
      await one.create("a", `${round}`);
      const isOld = (text: string) => text.trim() === `${round}`;
      const again = async () => {
        while (!(await other.create("a", "new"))) await new Promise((resolve) => setTimeout(resolve, 0));
      };
      await Promise.all([one.removeIf("a", isOld), other.removeIf("a", isOld), one.removeIf("a", isOld), again()]);
      expect((await one.read("a"))?.trim()).toBe("new");
      await one.remove("a");
    }
  }
  expect(await readdir(join(stage.home, "texts"))).toEqual([]);
});
