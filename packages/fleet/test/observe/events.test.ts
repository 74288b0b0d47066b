/** Events: in the order of their facts. */

import type { FleetEventType } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { EventBus, reportFailure } from "../../src/observe/event-bus.ts";
import { newStage } from "../support/stage.ts";
import { VirtualTime } from "../support/virtual-time.ts";

describe("events", () => {
  test("show the life of a sandbox in order", async () => {
    const stage = newStage({ checkpoints: { automatic: false } });
    const { fleet, events } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", purpose: "agent" });
    await lease.release();
    await stage.until(fleet.destroy({ thread: "t1" }));
    expect(events.map(({ type }) => type)).toEqual([
      "sandbox-created",
      "sandbox-attached",
      "lease-acquired",
      "lease-released",
      "sandbox-parked",
      "sandbox-stopping",
      "sandbox-stopped",
    ] satisfies FleetEventType[]);
    for (const event of events) {
      expect(event).toMatchObject({ instance: fleet.instanceId, user: "default", thread: "t1" });
      expect(event).toMatchObject({ sandboxId: lease.sandbox.id, generation: lease.generation });
    }
  });

  test("show a crash and the recovery from it in order", async () => {
    const stage = newStage({ checkpoints: { automatic: false } });
    const { fleet, events, eventsOf } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    events.length = 0;
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    await stage.until(lease.sandbox.exec("true"));
    expect(events.map(({ type }) => type)).toEqual([
      "sandbox-lost",
      "lease-lost",
      "sandbox-stopping",
      "sandbox-stopped",
      "sandbox-created",
      "sandbox-attached",
    ] satisfies FleetEventType[]);
    expect(eventsOf("sandbox-stopped")[0]?.reason).toBe("crashed");
  });

  test("have the wall-clock time at which they happened, and never go back", async () => {
    const stage = newStage();
    const { fleet, events, world } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await stage.advance(1_234);
    await lease.release();
    expect(events.at(-1)?.at).toBe(world.wallMs());
    expect(events.map(({ at }) => at)).toEqual(events.map(({ at }) => at).sort((a, b) => a - b));
    expect(events.find((event) => event.type === "lease-released")).toMatchObject({ heldMs: 1_234 });
  });

  test("reach only listeners that asked for their type, until they stop", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const heard: string[] = [];
    const stop = fleet.events.on((event) => heard.push(event.type), "lease-acquired", "lease-released");
    await (await fleet.acquire({ thread: "t1" })).release();
    stop();
    await (await fleet.acquire({ thread: "t1" })).release();
    expect(heard).toEqual(["lease-acquired", "lease-released"]);
  });

  test("can be iterated, and an iterator that stops is forgotten", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const seen: string[] = [];
    const reading = (async () => {
      for await (const event of fleet.events) {
        seen.push(event.type);
        if (event.type === "lease-released") break;
      }
    })();
    await stage.settle();
    await (await fleet.acquire({ thread: "t1" })).release();
    await stage.until(reading);
    expect(seen).toEqual(["sandbox-created", "sandbox-attached", "lease-acquired", "lease-released"]);
  });
});

describe("the event bus", () => {
  const newBus = () => new EventBus(new VirtualTime().newWorld(), "i-test" as never);

  test("keeps a bounded backlog for a slow iterator and drops the oldest", async () => {
    const bus = newBus();
    const iterator = bus[Symbol.asyncIterator]();
    const first = iterator.next();
    for (let count = 0; count <= 10_005; count += 1) bus.emit({ type: "capacity-exceeded", max: 0, count });
    expect((await first).value).toMatchObject({ count: expect.any(Number) });
    bus.close();
    const rest: number[] = [];
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next())
      if (next.value.type === "capacity-exceeded") rest.push(next.value.count);
    expect(rest.length).toBeLessThanOrEqual(10_000);
    expect(rest.at(-1)).toBe(10_005);
  });

  test("keeps a bounded history, oldest first", () => {
    const bus = newBus();
    const about = { sandboxId: "s", generation: 1, user: null, thread: null } as never;
    for (let attempt = 0; attempt < 2_005; attempt += 1)
      bus.emit({ type: "sandbox-stop-failed", problem: "", attempt, ...(about as object) } as never);
    const history = bus.historyOf("s" as never);
    expect(history).toHaveLength(2_000);
    expect(history[0]).toMatchObject({ attempt: 5 });
    expect(history.at(-1)).toMatchObject({ attempt: 2_004 });
    expect(bus.historyOf("other" as never)).toEqual([]);
  });

  test("reports a failure that must not reach the caller", async () => {
    const bus = newBus();
    const told: unknown[] = [];
    bus.on((event) => told.push(event));
    expect(await reportFailure(bus, "thing", async () => 7)).toBe(7);
    expect(await reportFailure(bus, "thing", () => Promise.reject(new Error("broken")))).toBeNull();
    expect(told).toMatchObject([{ type: "close-failed", what: "thing", problem: "broken" }]);
  });
});
