/**
 * Two gateways on two hosts, an engine each, and one store: the ownership scenarios of DeerFlow. Neither ends what the
 * other has, one takes over after a crash only where it reaches the engine, and callers are told where a thread lives.
 */

import { expect, test } from "vitest";
import type { MemoryEngine } from "../../../src/backends/memory/engine.ts";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import { type Instance, newStage, type Stage } from "../../support/stage.ts";
import { watched } from "../../support/virtual-time.ts";

const QUIET = { orphanTimeoutMs: 30_000, idleTimeoutMs: 0, maxLifetimeMs: 0, housekeepingIntervalMs: 1_000 } as const;
const NORTH = "http://north:7654";
const SOUTH = "http://south:7654";

async function twoHosts(config: FleetConfig = {}) {
  const stage = newStage({ ...QUIET, ...config }, true);
  const there = stage.newEngine();
  const north = await stage.open({}, undefined, { address: NORTH });
  const south = await stage.open({}, undefined, { engine: there, address: SOUTH });
  return { stage, there, north, south };
}

async function used(stage: Stage, { fleet }: Instance, thread: string): Promise<string> {
  const lease = await stage.until(fleet.acquire({ thread }));
  const { id } = lease.sandbox;
  await lease.sandbox.files.write("/mnt/user-data/workspace/note", `of ${thread}`);
  await stage.until(lease.release());
  return id;
}

/** The objects of an engine, by sandbox. */
function sandboxesOf(engine: MemoryEngine): readonly string[] {
  return engine
    .objects()
    .map(({ labels }) => labels.sandboxId as string)
    .sort();
}

test("neither gateway touches what the other's engine has, whatever housekeeping is due", async () => {
  const { stage, there, north, south } = await twoHosts({ pool: { default: 1 } });
  await using held = await stage.until(north.fleet.acquire({ thread: "held" }));
  const parked = await used(stage, north, "parked");
  await used(stage, south, "other");
  await stage.advance(60_000);
  const mine = sandboxesOf(stage.engine);
  expect(mine).toHaveLength(3);
  expect(mine).toEqual(expect.arrayContaining([held.sandbox.id, parked]));
  expect(sandboxesOf(there)).toHaveLength(2);
  // Nothing of the north was ever asked of the southern engine, or the other way round.
  const refsOf = (engine: MemoryEngine) => new Set(engine.objects().map(({ ref }) => ref));
  const asked = ({ backend }: Instance) =>
    (["probe", "destroy", "activity"] as const).flatMap((name) => backend.callsOf(name).map(([ref]) => ref));
  expect(asked(south).filter((ref) => refsOf(stage.engine).has(ref as never))).toEqual([]);
  expect(asked(north).filter((ref) => refsOf(there).has(ref as never))).toEqual([]);
  // A close that destroys takes only its own.
  await stage.until(south.fleet.close({ destroy: true }));
  expect(sandboxesOf(there)).toEqual([]);
  expect(sandboxesOf(stage.engine)).toEqual(mine);
});

test("a thread that lives elsewhere is answered with the gateway that has it, and gets no second sandbox", async () => {
  const { stage, there, north, south } = await twoHosts();
  const sandboxId = await used(stage, north, "t1");
  const { details } = await stage.refusal("thread_elsewhere", south.fleet.acquire({ thread: "t1" }));
  const { engineId } = north.backend.proxy;
  expect(details).toEqual({ thread: "t1", engine: engineId, gateways: [NORTH] });
  expect((await stage.refusal("thread_elsewhere", south.fleet.warm({ thread: "t1" }))).status).toBe(409);
  await stage.refusal("thread_elsewhere", south.fleet.acquire({ thread: "t1", existing: true }));
  await stage.refusal("thread_elsewhere", south.fleet.destroy({ thread: "t1" }));
  await stage.refusal("thread_elsewhere", south.fleet.destroy({ thread: "t1" }, { force: true, purge: true }));
  expect(sandboxesOf(there)).toEqual([]);
  expect(sandboxesOf(stage.engine)).toEqual([sandboxId]);
  // Without a sandbox the thread's files are still in the north.
  await stage.until(north.fleet.destroy({ thread: "t1" }));
  await stage.refusal("thread_elsewhere", south.fleet.acquire({ thread: "t1" }));
  await stage.refusal("thread_elsewhere", south.fleet.destroy({ thread: "t1" }, { purge: true }));
  // After a purge nothing is, and the thread may begin again anywhere.
  expect(await stage.until(north.fleet.destroy({ thread: "t1" }, { purge: true }))).toBe("stopped");
  await used(stage, south, "t1");
  await stage.refusal("thread_elsewhere", north.fleet.acquire({ thread: "t1" }));
});

test("a thread whose gateways are all gone is out of reach, and is there again when one comes back", async () => {
  const { stage, there, north, south } = await twoHosts();
  const sandboxId = await used(stage, north, "t1");
  north.crash();
  await stage.advance(120_000);
  expect(south.eventsOf("instance-buried")).toHaveLength(1);
  const { details, retryable } = await stage.refusal("engine_unreachable", south.fleet.acquire({ thread: "t1" }));
  expect(details.engine).toBe(north.backend.proxy.engineId);
  expect(retryable).toBe(true);
  await stage.refusal("engine_unreachable", south.fleet.destroy({ thread: "t1" }, { force: true }));
  // Unreachable is not dead.
  expect(sandboxesOf(stage.engine)).toEqual([sandboxId]);
  expect(await stage.recordOf("t1")).toMatchObject({ state: "ready", sandboxId });
  expect(sandboxesOf(there)).toEqual([]);
  const back = await stage.open({}, undefined, { address: NORTH });
  await using lease = await stage.until(back.fleet.acquire({ thread: "t1" }));
  expect(lease.sandbox.id).toBe(sandboxId);
  expect(await lease.sandbox.files.readText("/mnt/user-data/workspace/note")).toBe("of t1");
  const sent = await stage.refusal("thread_elsewhere", south.fleet.acquire({ thread: "t1" }));
  expect(sent.details.gateways).toEqual([NORTH]);
});

test("after a crash a gateway of the same engine takes over, and the gateway of another engine does not", async () => {
  const { stage, north, south } = await twoHosts();
  north.backend.hang("create", { when: "after", deaf: true });
  watched(north.fleet.acquire({ thread: "t1" }));
  await stage.settle();
  const halfMade = sandboxesOf(stage.engine);
  expect(halfMade).toHaveLength(1);
  north.crash();
  await stage.advance(60_000);
  // The south ends the session, as every peer does, and leaves the work to those who reach the engine.
  expect(south.eventsOf("instance-buried")).toHaveLength(1);
  expect(await stage.recordOf("t1")).toMatchObject({ state: "creating", actor: north.fleet.instanceId });
  expect(sandboxesOf(stage.engine)).toEqual(halfMade);
  const second = await stage.open({}, undefined, { address: NORTH });
  await using lease = await stage.until(second.fleet.acquire({ thread: "t1" }), 60_000);
  expect(sandboxesOf(stage.engine)).toEqual([lease.sandbox.id]);
});

test("after a loss of the store each engine recovers by itself, and every thread stays where it was", async () => {
  const { stage, there, north, south } = await twoHosts();
  const [inNorth, inSouth] = [await used(stage, north, "t1"), await used(stage, south, "t2")];
  north.crash();
  await stage.loseStore();
  await stage.advance(120_000);
  // The south does not wait for a host that is gone, and does not take the thread of its engine.
  await using lease = await stage.until(south.fleet.acquire({ thread: "t2" }));
  expect(lease.sandbox.id).toBe(inSouth);
  await stage.refusal("engine_unreachable", south.fleet.acquire({ thread: "t1" }));
  await used(stage, south, "t3");
  expect(sandboxesOf(stage.engine)).toEqual([inNorth]);
  const back = await stage.open({}, undefined, { address: NORTH });
  await stage.advance(120_000);
  await using again = await stage.until(back.fleet.acquire({ thread: "t1" }));
  expect(again.sandbox.id).toBe(inNorth);
  expect(sandboxesOf(there)).toHaveLength(2);
});

test("room is made on the own engine only, and each engine has its own limit", async () => {
  const { stage, north, south } = await twoHosts({ limits: { max: 3, maxPerEngine: 2, onFull: "reject" } });
  const parked = await used(stage, north, "t1");
  await using first = await stage.until(south.fleet.acquire({ thread: "s1" }));
  await using second = await stage.until(south.fleet.acquire({ thread: "s2" }));
  const full = await stage.refusal("capacity_exhausted", south.fleet.acquire({ thread: "s3" }));
  expect(full.details).toMatchObject({ scope: "engine", max: 2, leased: 2, parked: 1 });
  // The fleet has no room either, but the north makes some on its own engine.
  await using other = await stage.until(north.fleet.acquire({ thread: "t2" }));
  expect(sandboxesOf(stage.engine)).toEqual([other.sandbox.id]);
  expect(north.eventsOf("sandbox-stopping")).toMatchObject([{ sandboxId: parked, reason: "evicted" }]);
  expect([first.sandbox.id, second.sandbox.id]).toHaveLength(2);
});

test("every gateway shows the whole fleet, with the engine of each sandbox", async () => {
  const { stage, north, south } = await twoHosts();
  await used(stage, north, "t1");
  await used(stage, south, "t2");
  const engines = { t1: north.backend.proxy.engineId, t2: south.backend.proxy.engineId };
  for (const { fleet } of [north, south]) {
    const listed = await stage.until(fleet.list());
    expect(Object.fromEntries(listed.map(({ thread, engine }) => [thread, engine]))).toEqual(engines);
    expect(await stage.until(fleet.audit())).toEqual([]);
  }
  expect(await stage.until(south.fleet.find({ thread: "t1" }))).toMatchObject({ engine: engines.t1, state: "parked" });
  const explained = await stage.until(south.fleet.explain({ thread: "t1" }));
  expect(explained.engine).toBe(engines.t1);
  expect(explained.summary).toContain(`It is on engine ${engines.t1}, which this process does not reach.`);
  expect((await stage.until(north.fleet.explain({ thread: "t1" }))).summary).not.toContain("engine");
});

test("a blank of another engine is ended there", async () => {
  const { stage, north, south } = await twoHosts({ pool: { default: 1 } });
  await stage.advance(5_000);
  const blank = (await stage.records()).find(({ engine }) => engine === north.backend.proxy.engineId);
  const sent = await stage.refusal("thread_elsewhere", south.fleet.destroyBlank(blank?.sandboxId ?? ""));
  expect(sent.details).toMatchObject({ thread: "", gateways: [NORTH] });
  expect(sent.message).toMatch(/^The sandbox is on engine /);
  expect(await stage.until(north.fleet.destroyBlank(blank?.sandboxId ?? ""))).toBe("stopped");
});
