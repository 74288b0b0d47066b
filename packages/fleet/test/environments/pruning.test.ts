/** When environments are removed, and what makes another one: without sandboxes. */

import { existsSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BlueprintHash } from "@sandlot/contract";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Backend, EngineEvent } from "../../src/backend/backend.ts";
import type { NamedBlueprint } from "../../src/backend/blueprint.ts";
import { backendWithEnvironments } from "../../src/environments/backend-with-environments.ts";
import { Environments } from "../../src/environments/environments.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";

const world = systemWorld();
const never = new AbortController().signal;
let home: string;
let interpreters = "Python 3.11.2";
let builds = 0;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "slp-"));
  interpreters = "Python 3.11.2";
  builds = 0;
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function environments(limits: { maxAgeMs?: number; maxTotalBytes?: number } = {}): Environments {
  return new Environments({
    ...{ home, world, limits },
    basis: () => Promise.resolve(interpreters),
    build: async (_plan, { tree }) => {
      builds += 1;
      writeFileSync(join(tree, "file"), "content");
      return { sizeBytes: 1_000, files: 1, pythonPaths: [] };
    },
  });
}

function blueprint(script: string): NamedBlueprint {
  const network = { mode: "none" as const, allow: [] };
  const setup = { script, files: {}, network, timeoutMs: 1_000, diskBytes: 1_000_000 };
  const plain = { environment: {}, limits: {}, mounts: [], network, setup };
  return { name: "science", hash: "0".repeat(32) as BlueprintHash, blueprint: plain };
}

it("an upgraded interpreter, another script and nothing else make another environment", async () => {
  const all = environments();
  const first = await all.plan(blueprint("a"));
  expect(await all.plan(blueprint("a"))).toEqual(first);
  expect((await all.plan(blueprint("b")))!.id).not.toBe(first!.id);
  await all.use(blueprint("a"), "one-1", never);
  interpreters = "Python 3.12.0";
  expect((await all.plan(blueprint("a")))!.id).not.toBe(first!.id);
  await all.use(blueprint("a"), "two-1", never);
  await all.use(blueprint("a"), "three-1", never);
  expect(builds).toBe(2);
  // A sandbox keeps its own.
  expect(all.store.usedBy("one")).toBe(first!.id);
});

it("a mounted one stays, whatever its age and size; the others go, the longest unused first", async () => {
  const all = environments({ maxTotalBytes: 1_500 });
  const mounted = (await all.use(blueprint("a"), "one-1", never))!.tree;
  const old = (await all.use(blueprint("b"), "two-1", never))!.tree;
  const longAgo = new Date(Date.now() - 86_400_000);
  for (const sandbox of ["one-1", "two-1"]) utimesSync(join(home, "environments", "uses", sandbox), longAgo, longAgo);
  expect(await all.prune(new Set(["one-1"]), new Set())).toHaveLength(1);
  expect([existsSync(mounted), existsSync(old)]).toEqual([true, false]);
  const id = all.store.usedBy("one")!;
  await expect(all.remove(id, new Set(["one-1"]))).rejects.toMatchObject({ code: "environment_in_use" });
  expect(existsSync(join(mounted, "file"))).toBe(true);
  await all.remove(id, new Set());
  expect(existsSync(mounted)).toBe(false);
});

it("removing and using at once never leaves a user without its tree", async () => {
  const all = environments();
  for (let round = 0; round < 50; round++) {
    const { id } = (await all.plan(blueprint("a")))!;
    await all.use(blueprint("a"), "other-1", never);
    all.store.dropUse("other-1");
    const sandbox = `s${round}-1`;
    const [used] = await Promise.all([
      all.use(blueprint("a"), sandbox, never),
      all.remove(id, new Set()).catch((error: unknown) => expect(error).toMatchObject({ code: "environment_in_use" })),
    ]);
    expect(existsSync(join(used!.tree, "file"))).toBe(true);
    all.store.dropUse(sandbox);
  }
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
