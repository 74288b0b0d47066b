/** When environments are removed, and what makes another one: without sandboxes. */

import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type BlueprintHash, SandlotError } from "@sandlot/contract";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Backend, EngineEvent } from "../../src/backend/backend.ts";
import type { NamedBlueprint } from "../../src/backend/blueprint.ts";
import { DEFAULTS } from "../../src/config/defaults.ts";
import { backendWithEnvironments } from "../../src/environments/backend-with-environments.ts";
import { type EnvironmentLimits, Environments, type Living } from "../../src/environments/environments.ts";
import { draftName } from "../../src/world/drafts.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";

const world = systemWorld();
const never = new AbortController().signal;
const where = { engine: "engine", home: "/home" };
let home: string;
let interpreters = "Python 3.11.2";
let builds = 0;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "slp-"));
  interpreters = "Python 3.11.2";
  builds = 0;
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function environments(limits: Partial<EnvironmentLimits> = {}): Environments {
  return new Environments({
    ...{ home, world, limits: { ...DEFAULTS.environments, ...limits } },
    basis: () => Promise.resolve(interpreters),
    build: async (_plan, { tree }) => {
      builds += 1;
      writeFileSync(join(tree, "file"), "content");
      return { sizeBytes: 1_000, files: 1, pythonPaths: [] };
    },
  });
}

function living(...sandboxes: readonly string[]): Living {
  return { engine: where.engine, sandboxes: new Set(sandboxes) };
}

/** As if nothing had been used for a day. */
function makeOld(...sandboxes: readonly string[]): void {
  const longAgo = new Date(Date.now() - 86_400_000);
  for (const sandbox of sandboxes) utimesSync(join(home, "environments", "uses", sandbox), longAgo, longAgo);
}

function blueprint(script: string): NamedBlueprint {
  const network = { mode: "none" as const, allow: [] };
  const setup = { script, files: {}, network, timeoutMs: 1_000, diskBytes: 1_000_000 };
  const plain = { environment: {}, limits: {}, mounts: [], network, setup };
  return { name: "science", hash: "0".repeat(32) as BlueprintHash, blueprint: plain };
}

it("an upgraded interpreter, another script and nothing else make another environment", async () => {
  const all = environments();
  const first = await all.plan(blueprint("a"), never);
  expect(await all.plan(blueprint("a"), never)).toEqual(first);
  expect((await all.plan(blueprint("b"), never))!.id).not.toBe(first!.id);
  await all.use(blueprint("a"), "one-1", where, never);
  interpreters = "Python 3.12.0";
  expect((await all.plan(blueprint("a"), never))!.id).not.toBe(first!.id);
  await all.use(blueprint("a"), "two-1", where, never);
  await all.use(blueprint("a"), "three-1", where, never);
  expect(builds).toBe(2);
  // A sandbox keeps its own.
  expect(all.store.usedBy("one")?.id).toBe(first!.id);
});

it("a mounted one stays, whatever its age and size; the others go, the longest unused first", async () => {
  const all = environments({ maxTotalBytes: 1_500 });
  const mounted = (await all.use(blueprint("a"), "one-1", where, never))!.tree;
  const old = (await all.use(blueprint("b"), "two-1", where, never))!.tree;
  makeOld("one-1", "two-1");
  expect(await all.prune(living("one-1"), new Set())).toHaveLength(1);
  expect([existsSync(mounted), existsSync(old)]).toEqual([true, false]);
  const id = all.store.usedBy("one")!.id;
  await expect(all.remove(id, living("one-1"))).rejects.toMatchObject({ code: "environment_in_use" });
  expect(existsSync(join(mounted, "file"))).toBe(true);
  await all.remove(id, living());
  expect(existsSync(mounted)).toBe(false);
});

it("removing and using at once never leaves a user without its tree", async () => {
  const all = environments();
  for (let round = 0; round < 50; round++) {
    const { id } = (await all.plan(blueprint("a"), never))!;
    await all.use(blueprint("a"), "other-1", where, never);
    all.store.dropUse("other-1");
    const sandbox = `s${round}-1`;
    const [used] = await Promise.all([
      all.use(blueprint("a"), sandbox, where, never),
      all.remove(id, living()).catch((error: unknown) => expect(error).toMatchObject({ code: "environment_in_use" })),
    ]);
    expect(existsSync(join(used!.tree, "file"))).toBe(true);
    all.store.dropUse(sandbox);
  }
});

it("what another engine has is kept for as long as an unused one", async () => {
  const all = environments({ maxTotalBytes: 1, maxAgeDays: 2 });
  const other = (await all.use(blueprint("a"), "one-1", { ...where, engine: "other" }, never))!.tree;
  makeOld("one-1");
  expect(await all.prune(living(), new Set())).toEqual([]);
  makeOld("one-1");
  const short = environments({ maxTotalBytes: 1, maxAgeDays: 1 });
  expect(await short.prune(living(), new Set())).toHaveLength(1);
  expect(existsSync(other)).toBe(false);
});

it("a removal that a dead process has begun is undone, not built over", async () => {
  const all = environments();
  const { tree } = (await all.use(blueprint("a"), "one-1", where, never))!;
  const ok = join(tree, "..", "ok");
  renameSync(ok, `${ok}.going`);
  expect((await all.use(blueprint("a"), "two-1", where, never))!.tree).toBe(tree);
  expect(builds).toBe(1);
});

it("what a killed build has left is removed, also what its own account may not write", async () => {
  const all = environments();
  const dead = { ...world, identity: { ...world.identity, pid: 2 ** 22 + 1, startTime: "1" } } as World;
  const draft = join(home, "environments", draftName(dead));
  const closed = join(draft, "build", "closed");
  mkdirSync(closed, { recursive: true });
  writeFileSync(join(closed, "file"), "");
  chmodSync(closed, 0o555);
  expect(await all.prune(living(), new Set())).toEqual([]);
  expect(existsSync(draft)).toBe(false);
  expect(readdirSync(join(home, "environments", "trash"))).toEqual([]);
});

it("a failure answers until its time is over, and a rebuild goes at once", async () => {
  let now = 1_000_000;
  let works = false;
  let tries = 0;
  const all = new Environments({
    ...{
      home,
      world: { ...world, wallMs: () => now } as World,
      limits: { ...DEFAULTS.environments, retryAfterMs: 60_000 },
    },
    basis: async () => "",
    build: async (plan) => {
      tries += 1;
      if (works) return { sizeBytes: 1, files: 0, pythonPaths: [] };
      throw new SandlotError("environment_failed", { environment: plan.id, problem: "exit code 3" });
    },
  });
  const ask = () => all.use(blueprint("a"), "one-1", where, never);
  for (let asked = 0; asked < 3; asked++) await expect(ask()).rejects.toMatchObject({ code: "environment_failed" });
  expect(tries).toBe(1);
  now += 59_999;
  await expect(ask()).rejects.toMatchObject({ code: "environment_failed" });
  expect(tries).toBe(1);
  now += 1;
  await expect(ask()).rejects.toMatchObject({ code: "environment_failed" });
  expect(tries).toBe(2);
  works = true;
  await all.rebuild((await all.plan(blueprint("a"), never))!, never);
  expect((await ask())?.facts.sizeBytes).toBe(1);
  expect(tries).toBe(3);
});

it("an engine that is away is no failure of the setup: the next acquire tries again", async () => {
  let tries = 0;
  const all = new Environments({
    ...{ home, world, limits: DEFAULTS.environments },
    basis: async () => "",
    build: async () => {
      tries += 1;
      throw new SandlotError("engine_unavailable", { engine: "docker", problem: "away", tried: [] } as never);
    },
  });
  for (let asked = 0; asked < 2; asked++)
    await expect(all.use(blueprint("a"), "one-1", where, never)).rejects.toMatchObject({ code: "engine_unavailable" });
  expect(tries).toBe(2);
  expect(all.entries()).toEqual([]);
});

it("a prune that fails is an event, and the fleet goes on", async () => {
  const fired: (() => void)[] = [];
  const timer = (_: number, fire: () => void) => {
    fired.push(fire);
    return { cancel: () => {} };
  };
  const away = {
    list: () => Promise.reject(new Error("the engine is away")),
    watch: () => () => {},
    close: async () => {},
  };
  const backend = backendWithEnvironments(away as unknown as Backend, {}, environments(), { ...world, timer } as World);
  const events: EngineEvent[] = [];
  const stop = backend.watch((event) => events.push(event));
  fired.at(-1)?.();
  await expect
    .poll(() => events)
    .toEqual([{ type: "housekeeping-failed", task: "environments", problem: "the engine is away" }]);
  expect(fired).toHaveLength(2);
  stop();
  await backend.close();
});
