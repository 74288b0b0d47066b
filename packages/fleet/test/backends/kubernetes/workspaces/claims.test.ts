/**
 * A claim for each thread, against claims in memory that refuse what an API server refuses. They exist for faults: answers
 * that are lost after the call took effect, and other gateways between any two calls.
 */

import { type FleetId, type Generation, type SandboxId, SandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { WorkspaceSpot } from "../../../../src/backend/backend.ts";
import { threadKeyOf } from "../../../../src/backend/labels.ts";
import { settleWorkspace } from "../../../../src/backend/workspace-binding.ts";
import { type Claim, type ClaimApi, claimName } from "../../../../src/backends/kubernetes/workspaces/claim-api.ts";
import { ClaimWorkspaces } from "../../../../src/backends/kubernetes/workspaces/claim-workspaces.ts";
import type { PodSpec } from "../../../../src/backends/kubernetes/workspaces/pod-workspaces.ts";
import type { Owner } from "../../../../src/host/workspaces/homes.ts";
import { outcomeOf, VolumeGround, world } from "./volume-ground.ts";

const fleet = "fleet" as FleetId;
const ground = new VolumeGround();
ground.dispose();

/** Versions and preconditions as an API server has them. */
class Claims implements ClaimApi {
  readonly all = new Map<string, Claim>();
  /** Claims that a pod mounts: deleting one only marks it. */
  readonly inUse = new Set<string>();
  calls = 0;
  /** Runs before the n-th call. */
  before: { readonly call: number; run(): Promise<unknown> } | null = null;
  /** The answer of this call is lost after it took effect. */
  lost = 0;
  #version = 0;

  get = (name: string) => this.#call(() => this.all.get(name) ?? null);

  create: ClaimApi["create"] = ({ name, labels, annotations }) =>
    this.#call(() => {
      if (this.all.has(name)) return "exists";
      const createdAt = world.wallMs();
      const claim = { name, uid: world.randomHex(8), labels, annotations, createdAt, isBeingDeleted: false };
      return this.#put({ ...claim, resourceVersion: "" });
    });

  annotate: ClaimApi["annotate"] = ({ name, uid, resourceVersion }, annotations) =>
    this.#call(() => {
      const claim = this.all.get(name);
      if (claim === undefined) return "absent";
      if (claim.uid !== uid || claim.resourceVersion !== resourceVersion) return "conflict";
      this.#put({ ...claim, annotations: { ...claim.annotations, ...annotations } });
      return "done";
    });

  remove: ClaimApi["remove"] = ({ name, uid, resourceVersion }) =>
    this.#call(() => {
      const claim = this.all.get(name);
      if (claim === undefined) return "absent";
      if (claim.uid !== uid || claim.resourceVersion !== resourceVersion) return "conflict";
      if (this.inUse.has(name)) this.#put({ ...claim, isBeingDeleted: true });
      else this.all.delete(name);
      return "done";
    });

  async *list() {
    yield* [...this.all.values()];
  }

  age(name: string): void {
    const claim = this.all.get(name);
    if (claim !== undefined) this.#put({ ...claim, createdAt: 0 });
  }

  #put(claim: Claim): Claim {
    const next = { ...claim, resourceVersion: String(++this.#version) };
    this.all.set(claim.name, next);
    return next;
  }

  async #call<T>(work: () => T): Promise<T> {
    const call = ++this.calls;
    const { before } = this;
    if (before?.call === call) {
      this.before = null;
      await before.run();
    }
    const result = work();
    if (call !== this.lost) return result;
    throw new SandlotError("engine_unavailable", { engine: "kubernetes", problem: "lost", tried: [], retryAfterMs: 1 });
  }
}

function gateway(api: Claims): ClaimWorkspaces {
  return new ClaimWorkspaces({ api, fleet, world, goneTimeoutMs: 300 });
}

function specOf(key: Owner): { spec: PodSpec; spot: WorkspaceSpot } {
  const marker = ground.marker(key);
  const { generation, sandboxId } = marker;
  return { spec: { labels: {} as never, marker }, spot: { ...key, generation, sandboxId, place: "home" } };
}

async function start(workspaces: ClaimWorkspaces, { spec }: { spec: PodSpec }) {
  await workspaces.prepare(spec);
  return workspaces.fence(spec);
}

describe("a claim for each thread", () => {
  it("is new at first and existing then, and fences older generations", async () => {
    const [api, key] = [new Claims(), ground.newKey()];
    const workspaces = gateway(api);
    const [older, newer] = [specOf(key), specOf(key)];
    expect(await workspaces.look(older.spot)).toEqual({ home: false, slot: false, stale: false });
    expect(await start(workspaces, older)).toBe("new");
    expect(await workspaces.look(older.spot)).toEqual({ home: true, slot: false, stale: false });
    expect(await start(workspaces, older)).toBe("existing");
    expect(await start(workspaces, newer)).toBe("existing");
    expect(await workspaces.look(older.spot)).toEqual({ home: true, slot: false, stale: true });
    for (const refused of [workspaces.prepare(older.spec), workspaces.fence(older.spec), workspaces.purge(older.spot)])
      expect(await outcomeOf(refused)).toBe("stale_generation");
    const twin = { ...newer.spot, sandboxId: "twin" as SandboxId };
    expect((await workspaces.look(twin)).stale).toBe(true);
    expect(await workspaces.latestGeneration()).toBe(newer.spot.generation);
    expect(await workspaces.prepare(newer.spec)).toMatchObject({ place: "home", subPath: null });
  });

  it("makes no blanks, and has no slots", async () => {
    const workspaces = gateway(new Claims());
    expect([workspaces.hasLateBinding, workspaces.files, workspaces.arrival()]).toEqual([false, null, null]);
    expect(await outcomeOf(workspaces.prepare({ labels: {} as never, marker: null }))).toBe("capability_missing");
  });

  it("goes with a purge, and the next sandbox gets a new one", async () => {
    const [api, key] = [new Claims(), ground.newKey()];
    const workspaces = gateway(api);
    const used = specOf(key);
    await start(workspaces, used);
    await settleWorkspace(workspaces, used.spot, true);
    await settleWorkspace(workspaces, used.spot, true);
    expect(api.all.size).toBe(0);
    expect(await start(workspaces, specOf(key))).toBe("new");
  });

  it("is waited for while a pod still has it, within bounds", async () => {
    const [api, key] = [new Claims(), ground.newKey()];
    const workspaces = gateway(api);
    const used = specOf(key);
    await start(workspaces, used);
    const name = claimName(threadKeyOf(key.user, key.thread));
    api.inUse.add(name);
    expect(await outcomeOf(workspaces.purge(used.spot))).toBe("engine_unavailable");
    expect(await workspaces.look(used.spot)).toMatchObject({ home: false });
    expect(await outcomeOf(workspaces.prepare(specOf(key).spec))).toBe("engine_unavailable");
    api.all.delete(name);
    await workspaces.purge(used.spot);
    expect(await start(workspaces, specOf(key))).toBe("new");
  });

  it("without an annotation is swept when it is old and nothing wants it", async () => {
    const api = new Claims();
    const workspaces = gateway(api);
    const keys = [ground.newKey(), ground.newKey(), ground.newKey(), ground.newKey()] as const;
    const [late, young, wanted, used] = keys.map(specOf);
    for (const one of [late, young, wanted]) await workspaces.prepare((one as { spec: PodSpec }).spec);
    await start(workspaces, used as { spec: PodSpec });
    const names = keys.map(({ user, thread }) => claimName(threadKeyOf(user, thread)));
    for (const at of [0, 2, 3]) api.age(names[at] ?? "");
    await workspaces.sweep(async ({ threadKey }) => claimName(threadKey as never) === names[2]);
    expect([...api.all.keys()]).toEqual(names.slice(1));
  });

  it.each(["before", "while"])("of something else, made %s this one is, is neither used nor purged", async (when) => {
    const [api, key] = [new Claims(), ground.newKey()];
    const foreign = { name: claimName(threadKeyOf(key.user, key.thread)), labels: {}, annotations: {} };
    const used = specOf(key);
    if (when === "before") await api.create(foreign);
    else api.before = { call: 2, run: () => api.create(foreign) };
    expect(await outcomeOf(gateway(api).prepare(used.spec))).toBe("create_failed");
    expect(await outcomeOf(gateway(api).fence(used.spec))).toBe("create_failed");
    expect(await outcomeOf(gateway(api).purge(used.spot))).toBe("create_failed");
    expect(api.all.size).toBe(1);
  });
});

describe("between any two calls", () => {
  const CALLS_MAX = 20;

  it("an answer may be lost: repeating the step repairs it", async () => {
    for (let lost = 1; lost <= CALLS_MAX; lost++) {
      const [api, key] = [new Claims(), ground.newKey()];
      const workspaces = gateway(api);
      const used = specOf(key);
      const all = async () => {
        await start(workspaces, used);
        await workspaces.purge(used.spot);
      };
      api.lost = lost;
      const first = await outcomeOf(all());
      if (api.calls < lost) {
        expect(lost).toBeGreaterThan(5);
        return;
      }
      if (first !== undefined) expect(await outcomeOf(all())).toBe(undefined);
      expect([...api.all.keys()], `lost answer ${lost}`).toEqual([]);
    }
    throw new Error("it never ended");
  });

  it.each(["takes over", "purges"])("another generation %s: the older one never has the fence", async (deed) => {
    for (let call = 1; call <= CALLS_MAX; call++) {
      const [api, key] = [new Claims(), ground.newKey()];
      const [older, newer] = [specOf(key), specOf(key)];
      let ran = false;
      const other = async () => {
        ran = true;
        await start(gateway(api), newer);
        if (deed === "purges") await gateway(api).purge(newer.spot);
      };
      api.before = { call, run: other };
      const outcome = await outcomeOf(start(gateway(api), older));
      if (!ran) return expect(call).toBeGreaterThan(3);
      const claim = api.all.get(claimName(threadKeyOf(key.user, key.thread)));
      const generation = Number(claim?.annotations["sandlot.dev/generation"] ?? 0) as Generation;
      if (deed === "takes over") {
        expect([outcome, generation], `before call ${call}`).toEqual(["stale_generation", newer.spot.generation]);
      } else {
        // A purged thread has no fence. The older one may only get a new, empty claim.
        expect(["stale_generation", "new"], `before call ${call}`).toContain(outcome);
      }
    }
    throw new Error("it never ended");
  });

  it("a sweep never takes a claim whose fence is raised meanwhile", async () => {
    const [api, key] = [new Claims(), ground.newKey()];
    const workspaces = gateway(api);
    const used = specOf(key);
    await workspaces.prepare(used.spec);
    api.age(claimName(threadKeyOf(key.user, key.thread)));
    await workspaces.sweep(async () => {
      await workspaces.fence(used.spec);
      return false;
    });
    expect(await workspaces.look(used.spot)).toMatchObject({ home: true, stale: false });
  });
});
