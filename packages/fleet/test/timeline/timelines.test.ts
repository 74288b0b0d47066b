/** Every place where timelines are kept follows the rules of `backend/timelines.ts`. */

import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ThreadId, UserId } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MemoryTimelines } from "../../src/backend/memory-timelines.ts";
import {
  PURGE_REMEMBERED_MS,
  TIMELINE_MAX_BYTES,
  type TimelineLine,
  type Timelines,
} from "../../src/backend/timelines.ts";
import { homeTimelines } from "../../src/host/timelines/home-timelines.ts";
import { EntryTimelines } from "../../src/store/entry-timelines.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { openRows } from "../store/stores.ts";

const world = systemWorld();
const home = mkdtempSync(join(tmpdir(), "sandlot-timelines-"));
/** A clock that a test moves. */
let aheadMs = 0;
const clock = { ...world, wallMs: () => world.wallMs() + aheadMs } as typeof world;
Object.setPrototypeOf(clock, world);
const entries = new MemoryEntries();
let serial = 0;

/** `open` gives another writer of the same logs. */
const PLACES: readonly { name: string; maxBytes: number; open: () => Timelines | Promise<Timelines> }[] = [
  { name: "memory", maxBytes: TIMELINE_MAX_BYTES, open: sameOne(() => new MemoryTimelines(clock)) },
  { name: "disk", maxBytes: TIMELINE_MAX_BYTES, open: () => homeTimelines(home, clock) },
  { name: "rows of a store", maxBytes: 40 * 1024, open: async () => new EntryTimelines(await rowEntries(), clock) },
  { name: "store", maxBytes: 40 * 1024, open: () => new EntryTimelines(entries, clock) },
];

let rows: ReturnType<typeof openRows> | null = null;

/** Another gateway's view of the same store each time. */
async function rowEntries() {
  rows ??= openRows();
  const { entries } = await (await rows).second();
  if (entries === null) throw new Error("a row store has entries");
  return entries;
}

function sameOne(open: () => Timelines): () => Timelines {
  const one = open();
  return () => one;
}

const someone = () => ({ user: "alice" as UserId, thread: `t${++serial}` as ThreadId });
const line = (text: string, generation: number | null = 5): TimelineLine => ({ at: clock.wallMs(), generation, text });
const textOf = async (timelines: Timelines, owner: ReturnType<typeof someone>, from?: number) =>
  Buffer.from((await timelines.read(owner, from))?.bytes ?? []).toString("utf8");

afterAll(async () => {
  rmSync(home, { recursive: true, force: true });
  await (await rows)?.dispose();
});

describe.each(PLACES)("timelines in $name", ({ open, maxBytes }) => {
  let timelines: Timelines;
  beforeAll(async () => {
    aheadMs = 0;
    timelines = await open();
  });
  afterAll(() => timelines.close());

  test("a thread without one has none", async () => {
    const owner = someone();
    expect(await timelines.read(owner)).toBeNull();
    expect(await timelines.end(owner)).toBe(0);
  });

  test("lines come back in order, and the end is where the next one begins", async () => {
    const owner = someone();
    await timelines.append(owner, [line("one"), line("zwölf")]);
    const end = await timelines.end(owner);
    await timelines.append(owner, [line("three")]);
    expect(await textOf(timelines, owner)).toBe("one\nzwölf\nthree\n");
    const text = await timelines.read(owner, end);
    const bytes = Buffer.from(text?.bytes ?? []);
    expect(bytes.subarray(end - (text?.first ?? 0)).toString("utf8")).toBe("three\n");
    expect(text?.isWhole).toBe(true);
    expect(await textOf(timelines, someone())).toBe("");
  });

  test("two writers at the same time lose nothing", async () => {
    const owner = someone();
    const other = await open();
    const writes = Array.from({ length: 20 }, (_, index) =>
      (index % 2 === 0 ? timelines : other).append(owner, [line(`a${index}`), line(`b${index}`)]),
    );
    await Promise.all(writes);
    const lines = (await textOf(timelines, owner)).trimEnd().split("\n");
    expect(lines).toHaveLength(40);
    // A batch stays together.
    for (let index = 0; index < 40; index += 2) expect(lines[index + 1]).toBe(lines[index]?.replace("a", "b"));
    if (other !== timelines) await other.close();
  });

  test("a full log drops its oldest lines, says so, and keeps its offsets", async () => {
    const owner = someone();
    const offsets = new Map<string, number>();
    const batch = (n: number) => Array.from({ length: 16 }, (_, index) => line(`${n}.${index} ${"x".repeat(1_000)}`));
    const rounds = Math.ceil((maxBytes * 1.5) / 16_000);
    for (let n = 0; n < rounds; n += 1) {
      await timelines.append(owner, batch(n));
      const text = await timelines.read(owner);
      const bytes = Buffer.from(text?.bytes ?? []);
      expect(bytes.byteLength).toBeLessThanOrEqual(maxBytes);
      for (let start = 0; start < bytes.byteLength; start = bytes.indexOf(10, start) + 1) {
        const name = bytes.toString("utf8", start, bytes.indexOf(32, start));
        const offset = (text?.first ?? 0) + start;
        expect(offsets.get(name) ?? offset, name).toBe(offset);
        offsets.set(name, offset);
      }
    }
    const text = await timelines.read(owner);
    expect(text?.isWhole).toBe(false);
    expect(Buffer.from(text?.bytes ?? []).byteLength).toBeGreaterThan(maxBytes / 2);
    const whole = await textOf(timelines, owner);
    expect(whole.slice(0, 2_000)).not.toMatch(/^0\.0 /m);
    expect(whole.slice(-1_100)).toMatch(new RegExp(`\\n${rounds - 1}\\.15 x+\\n$`));
    expect(whole.slice(0, 20)).toMatch(/^\d+\.\d+ x/);
  });

  test("after a purge nothing is left, late lines stay out, and a new log has larger offsets", async () => {
    const owner = someone();
    await timelines.append(owner, [line("before", 5)]);
    const end = await timelines.end(owner);
    const at = clock.wallMs();
    const late = { ...line("late", null), at: at - 1 };
    await timelines.purge(owner, { generation: 5, at });
    await timelines.purge(owner, { generation: 5, at });
    expect(await timelines.read(owner)).toBeNull();
    await (await open()).append(owner, [line("late", 4), line("late", 5), late]);
    expect(await timelines.read(owner)).toBeNull();
    aheadMs += 10;
    await timelines.append(owner, [line("late", 5), line("after", 6), { ...line("after too", null), at: at + 5 }]);
    expect(await textOf(timelines, owner)).toBe("after\nafter too\n");
    const text = await timelines.read(owner);
    expect(text?.first).toBeGreaterThan(end);
    expect(text?.isWhole).toBe(true);
  });

  test("a sweep forgets old purges and no lines", async () => {
    const [kept, purged, again] = [someone(), someone(), someone()];
    await timelines.append(kept, [line("kept")]);
    await timelines.purge(purged, { generation: 5, at: clock.wallMs() });
    await timelines.purge(again, { generation: 5, at: clock.wallMs() });
    await timelines.append(again, [line("again", 6)]);
    aheadMs += 2 * PURGE_REMEMBERED_MS;
    await timelines.sweep();
    expect(await textOf(timelines, kept)).toBe("kept\n");
    expect(await textOf(timelines, again)).toBe("again\n");
    await timelines.append(purged, [line("new", 5)]);
    expect(await textOf(timelines, purged)).toMatch(/^(?:new\n)?$/);
  });
});

describe("on a disk", () => {
  const root = mkdtempSync(join(tmpdir(), "sandlot-timelines-"));
  const timelines = homeTimelines(root, clock);
  const directories = () => readdirSync(join(root, "timelines")).filter((name) => name !== ".locks");
  afterAll(async () => {
    await timelines.close();
    rmSync(root, { recursive: true, force: true });
  });

  test("only the fleet's account can read it, and no name tells the thread", async () => {
    await timelines.append({ user: "alice" as UserId, thread: "secret-plan" as ThreadId }, [line("x")]);
    const [directory = ""] = directories();
    expect(directory).toMatch(/^[0-9a-f]{32}$/);
    const [piece = ""] = readdirSync(join(root, "timelines", directory));
    expect(statSync(join(root, "timelines", directory)).mode & 0o077).toBe(0);
    expect(statSync(join(root, "timelines", directory, piece)).mode & 0o077).toBe(0);
  });

  test("a purge leaves no byte of the log on the disk", async () => {
    const owner = { user: "alice" as UserId, thread: "gone" as ThreadId };
    const before = new Set(directories());
    await timelines.append(owner, [line("what-was-here")]);
    const [directory = ""] = directories().filter((name) => !before.has(name));
    await timelines.purge(owner, { generation: 5, at: clock.wallMs() });
    const names = readdirSync(join(root, "timelines", directory));
    expect(names).toEqual([expect.stringMatching(/^purged\.5\.\d+$/)]);
    expect(readFileSync(join(root, "timelines", directory, names[0] ?? ""), "utf8")).toBe("");
    aheadMs += 2 * PURGE_REMEMBERED_MS;
    await timelines.sweep();
    expect(directories()).not.toContain(directory);
  });

  test("files that are no piece are left alone, and a damaged one is read as it is", async () => {
    const owner = { user: "alice" as UserId, thread: "damaged" as ThreadId };
    const before = new Set(directories());
    await timelines.append(owner, [line("good")]);
    const [directory = ""] = directories().filter((name) => !before.has(name));
    writeFileSync(join(root, "timelines", directory, "core"), "x");
    writeFileSync(join(root, "timelines", directory, "b.abc"), "x");
    expect(await textOf(timelines, owner)).toBe("good\n");
  });
});

test("in a store, the logs that were written longest ago make room", async () => {
  const store = new MemoryEntries();
  const timelines = new EntryTimelines(store, clock);
  for (let n = 0; n < 505; n += 1) {
    aheadMs += 1;
    await timelines.append({ user: "u" as UserId, thread: `t${n}` as ThreadId }, [line(`line ${n}`)]);
  }
  expect(await store.list("timeline/")).toHaveLength(500);
  expect(await timelines.read({ user: "u" as UserId, thread: "t0" as ThreadId })).toBeNull();
  expect(await textOf(timelines, { user: "u" as UserId, thread: "t504" as ThreadId })).toBe("line 504\n");
});
