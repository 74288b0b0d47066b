import type { FleetEvent } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { EventLog, type LogItem } from "../../src/gateway/events/event-log.ts";
import { EventBus } from "../../src/observe/event-bus.ts";
import { VirtualTime } from "../support/virtual-time.ts";

function newLog() {
  const world = new VirtualTime().newWorld();
  const bus = new EventBus(world, "i-own" as never);
  return { bus, log: new EventLog(bus, world) };
}
const recovered = { type: "store-recovered" } as const;
const foreign = (name: string) => ({ type: "store-recovered", at: 1, instance: name });

/** What is in the log now. */
async function read(log: EventLog, start: number, own = false): Promise<readonly LogItem[]> {
  const stop = new AbortController();
  const items: LogItem[] = [];
  const reading = (async () => {
    for await (const item of log.from(start, { own }, stop.signal)) items.push(item);
  })();
  await new Promise((resolve) => setImmediate(resolve));
  stop.abort();
  await reading;
  return items;
}
const shown = (items: readonly LogItem[]) =>
  items.map((item) => (item.kind === "event" ? (item.event as FleetEvent).instance : item.kind));

describe("the log of events", () => {
  it("has own and forwarded events in one order, gaps and notices between them; or the own ones alone", async () => {
    const { bus, log } = newLog();
    const { next } = log.position(undefined);
    bus.emit(recovered);
    log.gap();
    log.forwarded(foreign("i-b"), JSON.stringify(foreign("i-b")));
    log.partial(["i-c"]);
    bus.emit(recovered);
    expect(shown(await read(log, next))).toEqual(["i-own", "gap", "i-b", "partial", "i-own"]);
    expect(shown(await read(log, next, true))).toEqual(["i-own", "i-own"]);
  });

  it("resumes after every kind of item, and says that something is missing after an id of another log", async () => {
    const { bus, log } = newLog();
    const { next } = log.position(undefined);
    bus.emit(recovered);
    log.forwarded(foreign("i-b"), "{}");
    log.gap();
    bus.emit(recovered);
    const items = await read(log, next);
    for (const [index, { id }] of items.entries()) {
      const resumed = log.position(id ?? undefined);
      expect(resumed.missed).toBe(false);
      expect(shown(await read(log, resumed.next))).toEqual(shown(items.slice(index + 1)));
    }
    const other = newLog();
    other.bus.emit(recovered);
    // Both logs have as many items; the life in the id tells them apart.
    expect(log.position("00000000-1").missed).toBe(true);
    expect(log.position("nonsense").missed).toBe(true);
    expect(log.position("").missed).toBe(true);
  });

  it("keeps so many events and so many bytes of others, and a reader behind gets a gap", async () => {
    const { bus, log } = newLog();
    const { next } = log.position(undefined);
    const large = "x".repeat(60_000);
    for (let turn = 0; turn < 400; turn += 1) log.forwarded(foreign("i-b"), large);
    const kept = await read(log, next);
    expect(kept[0]).toEqual({ kind: "gap", id: null });
    const bytes = kept.reduce((sum, item) => sum + (item.kind === "event" ? item.json.length : 0), 0);
    expect(bytes).toBeLessThanOrEqual(16 * 1024 * 1024);
    expect(bytes).toBeGreaterThan(15 * 1024 * 1024);
    for (let turn = 0; turn < 6_000; turn += 1) bus.emit(recovered);
    const later = await read(log, next);
    expect(later.length).toBe(5_001);
    expect(new Set(shown(later.slice(1)))).toEqual(new Set(["i-own"]));
  });
});
