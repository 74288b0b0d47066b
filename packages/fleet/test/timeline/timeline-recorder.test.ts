/** The writer of timelines: bounds, rates, secrets, and a place that cannot be written. */

import type { InstanceId, ThreadId, TimelineEntry, TimelineNote, UserId } from "@sandlot/contract";
import { expect, test } from "vitest";
import { MemoryTimelines } from "../../src/backend/memory-timelines.ts";
import { TIMELINE_LINE_MAX_BYTES, type Timelines } from "../../src/backend/timelines.ts";
import { entriesOf } from "../../src/lifecycle/timeline/timeline-line.ts";
import { recorderOf } from "../../src/lifecycle/timeline/timeline-recorder.ts";
import { EventBus } from "../../src/observe/event-bus.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const SECRET = "sk-live-0123456789abcdef";
const owner = { user: "alice" as UserId, thread: "t1" as ThreadId };
const about = { sandboxId: "s1", generation: 7 };

function stage(timelines?: Timelines) {
  const world = systemWorld();
  const instance = "i-1" as InstanceId;
  const bus = new EventBus(world, instance);
  const secret = { name: "k", host: "a.example", header: "x-key", value: SECRET, via: "https" as const };
  const network = { mode: "allowlist" as const, allow: [], secrets: [secret] };
  const settings = { blueprints: { default: { blueprint: { network } } } } as never;
  const kept = timelines ?? new MemoryTimelines(world);
  const recorder = recorderOf({ world, bus, instance, settings, timelines: kept });
  if (recorder === null) throw new Error("no recorder");
  const read = async (): Promise<TimelineEntry[]> => {
    await recorder.flush(owner);
    const text = await kept.read(owner);
    return text === null ? [] : [...entriesOf(text)];
  };
  const note = (one: TimelineNote) => recorder.note(owner.user, owner.thread, about, one);
  return { recorder, bus, read, note };
}

const fork = (thread: string): TimelineNote => ({ kind: "fork", what: "to", facts: { thread } });
const command = (text: string, more: object = {}): TimelineNote => ({
  kind: "command",
  what: "started",
  facts: { id: "c", way: "exec", command: text, ...more },
});
const refused = (host: string): TimelineNote => ({
  kind: "refused",
  what: "connection",
  facts: { host, port: 443, rule: "none", because: "it is not allowed", allow: "" },
});

test("no line shows the value of a bound secret, wherever it is and where the text is cut", async () => {
  const { note, read, recorder } = stage();
  note(fork(`a ${SECRET} b`));
  for (const before of [0, 1_980, 1_999, 7_990, 8_000, 8_010])
    note(command(`${"y".repeat(before)}${SECRET} ${SECRET}`));
  note({ kind: "upload", what: "files", facts: { names: [SECRET], count: 1, sizeBytes: 1 } });
  const text = JSON.stringify(await read());
  expect(text).toContain("[redacted]");
  expect(text).not.toContain(SECRET.slice(0, 12));
  await recorder.close();
});

test("every line is bounded, well-formed and readable", async () => {
  const { note, read, recorder } = stage();
  const long = "\u0000\ud800\u2028\n".repeat(20_000);
  note(command(long));
  note({ kind: "upload", what: "files", facts: { names: Array(500).fill(long), count: 500, sizeBytes: 1 } });
  const entries = await read();
  for (const entry of entries)
    expect(Buffer.byteLength(JSON.stringify(entry))).toBeLessThan(2 * TIMELINE_LINE_MAX_BYTES);
  // What has no form that fits is counted.
  expect(entries.map(({ kind, facts }) => (kind === "lost" ? facts.count : kind))).toEqual(
    entries.some(({ kind }) => kind === "lost") ? expect.arrayContaining([expect.any(Number)]) : ["command", "upload"],
  );
  await recorder.close();
});

test("what a sandbox causes by itself has a narrow rate, is counted, and leaves room for the rest", async () => {
  const { note, read, recorder } = stage();
  for (let n = 0; n < 5_000; n += 1) note(refused(`h${n}.example`));
  note(command("echo still noted"));
  const entries = await read();
  const connections = entries.filter(({ kind }) => kind === "refused").length;
  expect(connections).toBeGreaterThanOrEqual(100);
  expect(connections).toBeLessThan(200);
  expect(entries.find(({ kind }) => kind === "lost")?.facts.count).toBe(5_000 - connections);
  expect(entries.filter(({ kind }) => kind === "command")).toHaveLength(1);
  await recorder.close();
});

test("a place that cannot be written is told once, and what was lost is counted when it can be again", async () => {
  const inner = new MemoryTimelines(systemWorld());
  let isBroken = true;
  const timelines: Timelines = {
    gatherMs: 5,
    append: (...given) => (isBroken ? Promise.reject(new Error("no space left")) : inner.append(...given)),
    read: (...given) => inner.read(...given),
    end: (...given) => inner.end(...given),
    purge: (...given) => inner.purge(...given),
    sweep: () => inner.sweep(),
    close: () => inner.close(),
  };
  const { note, read, recorder, bus } = stage(timelines);
  const problems: string[] = [];
  bus.on((event) => event.type === "housekeeping-failed" && problems.push(event.problem), "housekeeping-failed");
  note(fork("one"));
  note(fork("two"));
  await recorder.flush(owner);
  note(fork("three"));
  await recorder.flush(owner);
  expect(problems).toEqual(["no space left"]);
  isBroken = false;
  note(fork("four"));
  const entries = await read();
  expect(entries.map(({ kind, facts }) => facts.thread ?? `${kind} ${facts.count}`)).toEqual(["four", "lost 3"]);
  await recorder.close();
});

test("closing writes the rest, and nothing is noted afterwards", async () => {
  const { note, read, recorder } = stage();
  note(fork("last"));
  await recorder.close();
  note(fork("after"));
  expect((await read()).map(({ facts }) => facts.thread)).toEqual(["last"]);
});

test("threads without a name have none", async () => {
  const { recorder, read } = stage();
  recorder.note(owner.user, null, about, fork("x"));
  recorder.note(null, owner.thread, about, fork("x"));
  expect(await read()).toEqual([]);
  await recorder.close();
});

test("a terminal's command that two instances saw is told once", async () => {
  const { note, read, recorder } = stage();
  for (const id of ["a", "b"]) note(command("ls", { id, way: "terminal", terminalId: "t", outputOffset: 12 }));
  note(command("ls", { id: "c", way: "terminal", terminalId: "t", outputOffset: 40 }));
  expect((await read()).map(({ facts }) => facts.id)).toEqual(["a", "c"]);
  await recorder.close();
});
