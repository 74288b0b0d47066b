/**
 * An instance takes over the unfinished work of a dead one. It adopts or ends engine objects without a record, and
 * leaves another fleet's objects alone.
 */

import { describe, expect, test } from "vitest";
import { newStage, newStageOn, STORE_KINDS } from "../../support/stage.ts";
import { watched } from "../../support/virtual-time.ts";

const config = { orphanTimeoutMs: 30_000, idleTimeoutMs: 0 } as const;

describe.each(STORE_KINDS)("over the %s store", (kind) => {
  test("the create of a dead instance is taken over and unmade, and the thread gets its sandbox", async () => {
    const stage = newStageOn(kind, config);
    const [a, b] = [await stage.open(), await stage.open()];
    a.backend.hang("create", { when: "after", deaf: true });
    watched(a.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    expect(stage.objects()).toHaveLength(1);
    const halfMade = stage.objects()[0]?.labels.sandboxId;
    a.crash({ seen: true });
    await using lease = await stage.until(b.fleet.acquire({ thread: "t1" }), 30_000);
    expect(lease.sandbox.id).not.toBe(halfMade);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([lease.sandbox.id]);
  });

  test("the stop of a dead instance is taken over and finished", async () => {
    const stage = newStageOn(kind, config);
    const [a, b] = [await stage.open(), await stage.open()];
    await stage.until((await stage.until(a.fleet.acquire({ thread: "t1" }))).release());
    a.backend.hang("destroy", { deaf: true });
    watched(a.fleet.destroy({ thread: "t1" }));
    await stage.settle();
    expect(await stage.recordOf("t1")).toMatchObject({ state: "stopping", actor: a.fleet.instanceId });
    a.crash({ seen: true });
    await stage.advance(10_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
    const explained = await b.fleet.explain(b.eventsOf("sandbox-stopped")[0]!.sandboxId);
    expect(explained.stopped).toMatchObject({ reason: "destroyed", by: b.fleet.instanceId });
  });
});

describe("taking over", () => {
  test("happens without anybody asking for the thread", async () => {
    const stage = newStage(config);
    const [a] = [await stage.open(), await stage.open()];
    a.backend.hang("create", { when: "after", deaf: true });
    watched(a.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    a.crash();
    await stage.advance(60_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
  });

  test("does not happen to a create of a living peer, however slow", async () => {
    const stage = newStage({ ...config, acquireTimeoutMs: 600_000 });
    const [a, b] = [await stage.open(), await stage.open()];
    const gate = a.backend.hang("create");
    const acquiring = watched(a.fleet.acquire({ thread: "t1" }));
    await stage.advance(300_000);
    expect(b.typesOf("sandbox-stopping", "instance-buried")).toEqual([]);
    gate.open();
    await using lease = await stage.until(acquiring.promise);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("a create that lands after its instance was buried is unmade by the one who made it", async () => {
    const stage = newStage(config);
    const [a, b] = [await stage.open(), await stage.open()];
    const gate = a.backend.hang("create", { deaf: true });
    const late = watched(a.fleet.acquire({ thread: "t1", timeoutMs: 600_000 }));
    await stage.settle();
    a.world.stop();
    await stage.time.untilTrue("buried", () => b.typesOf("instance-buried").length > 0);
    const lease = await stage.until(b.fleet.acquire({ thread: "t1" }));
    a.world.goOn();
    gate.open();
    const shared = await stage.until(late.promise);
    expect(shared.sandbox.id).toBe(lease.sandbox.id);
    // At once: later the reconciler would have ended it.
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([lease.sandbox.id]);
    await stage.advance(60_000);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([lease.sandbox.id]);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    await shared.release();
    await lease.release();
  });

  test("an instance that was buried in the middle of a stop does not go on with it", async () => {
    const stage = newStage(config);
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    const read = a.store.hang("get", { when: "after", deaf: true });
    watched(a.fleet.destroy({ thread: "t1" }));
    await stage.settle();
    a.world.stop();
    await stage.time.untilTrue("buried", () => b.typesOf("instance-buried").length > 0);
    await using fresh = await stage.until(b.fleet.acquire({ thread: "t1" }));
    a.world.goOn();
    read.open();
    await stage.advance(30_000);
    expect((await fresh.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(b.typesOf("lease-lost")).toEqual([]);
  });
});

describe("the reconciler", () => {
  test("stops the record of a sandbox that is gone, when its event was missed", async () => {
    const stage = newStage(config);
    const { fleet, eventsOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    const resume = stage.engine.suspendEvents();
    stage.killSandbox(lease.sandbox.id);
    await stage.advance(10_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
    expect(eventsOf("sandbox-stopped").map(({ reason }) => reason)).toEqual(["crashed"]);
    resume();
  });

  test("looks at once when the engine says that events were missed", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    const resume = stage.engine.suspendEvents();
    stage.killSandbox(lease.sandbox.id);
    resume();
    await stage.settle();
    expect(await stage.records()).toEqual([]);
  });

  test("does not conclude anything from a list that lacks an object: it asks", async () => {
    const stage = newStage(config);
    const { fleet, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    backend.on("list", async () => []);
    await stage.advance(120_000);
    expect(backend.callsOf("probe").length).toBeGreaterThan(0);
    expect(stage.objects()).toHaveLength(1);
    backend.on("probe", async () => "unknown" as const);
    await stage.advance(120_000);
    expect(await stage.recordOf("t1")).toMatchObject({ state: "ready", sandboxId: lease.sandbox.id });
  });

  test("ends what no record knows and nothing proves, after the grace and not before", async () => {
    const stage = newStage(config);
    const { eventsOf } = await stage.open();
    await stage.engine.create(strayBlank("stage"));
    await stage.advance(config.orphanTimeoutMs - 1_000);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(20_000);
    expect(stage.objects()).toEqual([]);
    expect(await stage.records()).toEqual([]);
    expect(eventsOf("sandbox-stopped").map(({ reason }) => reason)).toEqual(["orphaned"]);
  });

  test("removes an object of an older generation of a known thread at once", async () => {
    const stage = newStage(config);
    const { fleet, backend } = await stage.open();
    let first: Parameters<typeof stage.engine.create>[0] | null = null;
    const stop = backend.on("create", (proceed, spec) => {
      first = spec;
      return proceed();
    });
    const lease = await fleet.acquire({ thread: "t1" });
    stop();
    await lease.release();
    await stage.until(fleet.destroy({ thread: "t1" }));
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    // A create of the first generation lands late, as in an engine that finishes after every caller has gone.
    const spec = first as unknown as Parameters<typeof stage.engine.create>[0];
    await stage.engine.create({ ...spec, marker: null });
    expect(stage.objects()).toHaveLength(2);
    await stage.advance(7_000);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([next.sandbox.id]);
    expect((await next.sandbox.exec("echo on")).stdout).toBe("on\n");
  });

  test("never touches what belongs to another fleet", async () => {
    const stage = newStage(config);
    const mine = await stage.open();
    await stage.engine.create(strayBlank("stranger"));
    await (await mine.fleet.acquire({ thread: "t1" })).release();
    await stage.advance(600_000);
    await stage.until(mine.fleet.close({ destroy: true }));
    expect(stage.objects("stranger")).toMatchObject([{ liveness: "alive" }]);
    expect(stage.objects()).toEqual([]);
  });

  test("adopts what was left in the engine by a fleet whose store is new, and counts it against the limit", async () => {
    const stage = newStage({ ...config, limits: { max: 2 } });
    const old = await stage.open();
    const ids: string[] = [];
    for (const thread of ["a", "b"]) {
      const lease = await old.fleet.acquire({ thread });
      ids.push(lease.sandbox.id);
      await lease.release();
    }
    await stage.until(old.fleet.close());
    stage.tables.empty();
    const { fleet } = await stage.open();
    await stage.advance(120_000);
    expect((await stage.records()).map(({ sandboxId }) => sandboxId).sort()).toEqual(ids.sort());
    await using lease = await stage.until(fleet.acquire({ thread: "c" }));
    expect(stage.objects()).toHaveLength(2);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });
});

describe("housekeeping", () => {
  test("goes on after a task failed, and tells of it", async () => {
    const stage = newStage({ idleTimeoutMs: 60_000 });
    const { fleet, backend, eventsOf } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const restore = backend.fail("list", new Error("engine restarting"));
    await stage.advance(30_000);
    expect(eventsOf("housekeeping-failed").map(({ task }) => task)).toContain("reconcile");
    restore();
    await stage.advance(60_000);
    expect(stage.objects()).toEqual([]);
  });

  test("of an engine that hangs does not keep leases from being renewed or sessions from living", async () => {
    const stage = newStage({ idleTimeoutMs: 0 });
    const [a, b] = [await stage.open(), await stage.open()];
    await using lease = await a.fleet.acquire({ thread: "t1" });
    for (const name of ["list", "probe", "activity", "destroy"] as const) a.backend.hang(name, { deaf: true });
    await stage.advance(300_000);
    expect(b.typesOf("instance-buried")).toEqual([]);
    expect(a.typesOf("instance-doubted")).toEqual([]);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });
});

/** An object that a fleet of this name made, and that no store knows. */
function strayBlank(fleet: string) {
  const generation = 7 as never;
  const labels = { fleet, sandboxId: `stray-of-${fleet}`, generation, threadKey: null, blueprintHash: "hash" };
  return {
    labels: labels as never,
    generation,
    token: "token" as never,
    blueprint: { environment: {}, limits: {}, mounts: [], network: { mode: "none" as const, allow: [] } },
    marker: null,
  };
}
