/**
 * Binding and settling: the table of `backend/workspace-binding.ts`, crashes between any two steps, and races.
 */

import {
  type FleetId,
  type Generation,
  isSandlotError,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend, Place, WorkspaceSpot, Workspaces } from "../../src/backend/backend.ts";
import { BindingInDoubt, ensureBound, settleWorkspace } from "../../src/backend/workspace-binding.ts";
import { createMemoryBackend } from "../../src/backends/memory/backend.ts";
import { MemoryEngine } from "../../src/backends/memory/engine.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const world = systemWorld();
const fleetId = "fleet" as FleetId;
const key = { user: "user" as UserId, thread: "thread" as ThreadId };
const signal = new AbortController().signal;

type Step = "moveIn" | "makeIn" | "moveHome" | "quarantine" | "purge";
const STEPS: readonly Step[] = ["moveIn", "makeIn", "moveHome", "quarantine", "purge"];

describe("ensureBound", () => {
  it.each([
    { home: true, slot: false, outcome: "existing", took: ["moveIn"] },
    { home: false, slot: true, outcome: "existing", took: [] },
    { home: false, slot: false, outcome: "new", took: ["makeIn"] },
    { home: true, slot: true, outcome: "workspace_conflict", took: [] },
  ])("home $home, slot $slot: $outcome", async ({ home, slot, outcome, took }) => {
    const { workspaces, spot } = await stage({ home, slot });
    const { recorded, log } = record(workspaces);
    expect(await outcomeOf(ensureBound(recorded, spot))).toBe(outcome);
    expect(log).toEqual(took);
    const bound = outcome !== "workspace_conflict";
    expect(await workspaces.look(spot)).toMatchObject(bound ? { home: false, slot: true } : { home, slot });
  });

  it("does not even look when the workspace is mounted from home", async () => {
    const { workspaces, spot } = await stage({ home: true, slot: false });
    const blind = { ...workspaces, look: () => Promise.reject(new Error("looked")) };
    expect(await ensureBound(blind, { ...spot, place: "home" })).toBe("existing");
  });

  it.each([
    { home: true, slot: false },
    { home: false, slot: true },
    { home: false, slot: false },
  ])("home $home, slot $slot, but a later generation has used it: stale, nothing touched", async (before) => {
    const { workspaces, spot } = await stage(before);
    const { recorded, log } = record(workspaces);
    const old = { ...spot, generation: 1 as Generation };
    expect(await outcomeOf(ensureBound(recorded, old))).toBe("stale_generation");
    expect(log).toEqual([]);
    expect(await workspaces.look(spot)).toMatchObject(before);
  });

  it.each([
    { home: true, slot: false },
    { home: false, slot: false },
  ])("home $home, slot $slot, but given up by the time it was seen: nothing is moved", async (before) => {
    const { workspaces, spot } = await stage(before);
    const { recorded, log } = record(workspaces);
    let ours = true;
    const paused: Workspaces = {
      ...recorded,
      look: async (at) => {
        const seen = await workspaces.look(at);
        ours = false;
        return seen;
      },
    };
    await expect(ensureBound(paused, spot, () => ours)).rejects.toThrow(BindingInDoubt);
    expect(log).toEqual([]);
    expect(await workspaces.look(spot)).toMatchObject(before);
  });

  it("gives up when what it sees never fits", async () => {
    const { workspaces, spot } = await stage({ home: true, slot: false });
    let tries = 0;
    const unfit = {
      ...workspaces,
      moveIn: async () => {
        tries++;
        throw new SandlotError("file_exists", { path: "/slot" });
      },
    };
    expect(await outcomeOf(ensureBound(unfit, spot))).toBe("file_exists");
    expect(tries).toBe(5);
  });

  it("does not try again when the step failed for another reason", async () => {
    const { workspaces, spot } = await stage({ home: true, slot: false });
    let tries = 0;
    const broken = {
      ...workspaces,
      moveIn: async () => {
        tries++;
        throw new Error("disk on fire");
      },
    };
    expect(await outcomeOf(ensureBound(broken, spot))).toBe("Error: disk on fire");
    expect(tries).toBe(1);
  });
});

describe("settleWorkspace", () => {
  it.each([
    { home: true, slot: false, purge: false, outcome: undefined, after: { home: true, slot: false } },
    { home: false, slot: true, purge: false, outcome: undefined, after: { home: true, slot: false } },
    { home: false, slot: false, purge: false, outcome: undefined, after: { home: false, slot: false } },
    { home: true, slot: true, purge: false, outcome: "workspace_conflict", after: { home: true, slot: true } },
    { home: true, slot: false, purge: true, outcome: undefined, after: { home: false, slot: false } },
    { home: false, slot: true, purge: true, outcome: undefined, after: { home: false, slot: false } },
    { home: true, slot: true, purge: true, outcome: undefined, after: { home: false, slot: false } },
  ])("home $home, slot $slot, purge $purge", async ({ home, slot, purge, outcome, after }) => {
    const { workspaces, spot, backend, ref } = await stage({ home, slot });
    await backend.destroy(ref, signal);
    expect(await outcomeOf(settleWorkspace(workspaces, spot, purge))).toBe(outcome);
    expect(await outcomeOf(settleWorkspace(workspaces, spot, purge))).toBe(outcome);
    expect(await workspaces.look(spot)).toMatchObject(after);
  });

  it.each([false, true])("a stale workspace in a slot goes into quarantine, home stays (purge %s)", async (purge) => {
    const { workspaces, spot, backend, ref, engine } = await stage({ home: true, slot: true });
    await backend.destroy(ref, signal);
    const old = { ...spot, generation: 1 as Generation };
    await settleWorkspace(workspaces, old, purge);
    await settleWorkspace(workspaces, old, purge);
    expect(await workspaces.look(old)).toEqual({ home: true, slot: false, stale: true });
    expect(engine.leftovers()).toEqual({ homes: 1, slots: 0, markers: 0, quarantined: 1 });
  });
});

describe("crashes", () => {
  const cases = STEPS.flatMap((step) => [false, true].map((after) => ({ step, after })));
  it.each(cases)("a crash at $step (took effect: $after) is mended by running again", async ({ step, after }) => {
    for (const home of [false, true]) {
      const { workspaces, spot, backend, ref } = await stage({ home, slot: false });
      const crashing = crashAt(workspaces, step, after);
      await ensureBound(crashing, spot).catch(() => {});
      await ensureBound(workspaces, spot);
      expect(await workspaces.look(spot)).toMatchObject({ home: false, slot: true });
      await backend.destroy(ref, signal);
      await settleWorkspace(crashing, spot, false).catch(() => {});
      await settleWorkspace(workspaces, spot, false);
      expect(await workspaces.look(spot)).toMatchObject({ home: true, slot: false });
      await settleWorkspace(crashing, spot, true).catch(() => {});
      await settleWorkspace(workspaces, spot, true);
      expect(await workspaces.look(spot)).toMatchObject({ home: false, slot: false });
    }
  });
});

describe("races", () => {
  it("several instances bind and settle at the same time, in any order of their steps", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), fc.boolean(), fc.integer({ min: 2, max: 4 }), async (scheduler, home, count) => {
        const { workspaces, spot, backend, ref } = await stage({ home, slot: false });
        const instances = Array.from({ length: count }, () => scheduled(workspaces, scheduler));
        const bound = instances.map((instance) => ensureBound(instance, spot));
        const outcomes = await scheduler.waitFor(Promise.all(bound));
        expect(await workspaces.look(spot)).toEqual({ home: false, slot: true, stale: false });
        expect(outcomes.filter((outcome) => outcome === "new").length).toBe(home ? 0 : 1);
        await backend.destroy(ref, signal);
        const settled = instances.map((instance) => settleWorkspace(instance, spot, false));
        await scheduler.waitFor(Promise.all(settled));
        expect(await workspaces.look(spot)).toEqual({ home: true, slot: false, stale: false });
      }),
      { numRuns: 200 },
    );
  });
});

/** A blank on an engine in memory, with the thread's workspace in the requested place. */
async function stage({ home, slot }: { home: boolean; slot: boolean }) {
  const engine = new MemoryEngine({ world });
  const backend = createMemoryBackend({ fleetId, engine, world });
  const generation = 10 as Generation;
  const { ref, place } = await make(backend, "blank", null, 2);
  const spot: WorkspaceSpot = { ...key, sandboxId: "blank" as SandboxId, generation, place };
  if (slot) await backend.workspaces.makeIn(spot);
  if (home) {
    // The same sandbox in the same generation: the only way to have both current.
    const other = await make(backend, "blank", key, generation);
    await backend.destroy(other.ref, signal);
  } else if (!slot) {
    // So that the workspace has been used by this generation in every case.
    await backend.workspaces.purge({ ...spot, place: "home" });
  }
  return { engine, backend, workspaces: backend.workspaces, spot, ref };
}

function make(
  backend: Backend,
  name: string,
  owner: typeof key | null,
  generation: number,
): Promise<{ ref: WorkspaceRef; place: Place }> {
  const sandboxId = name as SandboxId;
  const credentials = { generation: generation as Generation, token: "token" as Token };
  const blueprintHash = "hash" as never;
  const labels = { fleet: fleetId, sandboxId, generation: credentials.generation, threadKey: null, blueprintHash };
  const marker = owner === null ? null : { ...owner, ...credentials, sandboxId, blueprint: "default", blueprintHash };
  const blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none" as const, allow: [] } };
  return backend.create({ ...credentials, labels, marker, blueprint }, signal);
}
type WorkspaceRef = Parameters<Backend["destroy"]>[0];

function record(workspaces: Workspaces): { recorded: Workspaces; log: Step[] } {
  const log: Step[] = [];
  const recorded = { ...workspaces };
  for (const step of STEPS) {
    recorded[step] = async (spot) => {
      log.push(step);
      await workspaces[step](spot);
    };
  }
  return { recorded, log };
}

function crashAt(workspaces: Workspaces, crashing: Step, after: boolean): Workspaces {
  return {
    ...workspaces,
    [crashing]: async (spot: WorkspaceSpot) => {
      if (after) await workspaces[crashing](spot);
      throw new Error("crashed");
    },
  };
}

function scheduled(workspaces: Workspaces, scheduler: fc.Scheduler): Workspaces {
  const late = { ...workspaces };
  late.look = scheduler.scheduleFunction((spot: WorkspaceSpot) => workspaces.look(spot)) as Workspaces["look"];
  for (const step of STEPS) {
    late[step] = scheduler.scheduleFunction((spot: WorkspaceSpot) => workspaces[step](spot)) as Workspaces[Step];
  }
  return late;
}

function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => (isSandlotError(error) ? error.code : String(error)));
}
