/**
 * The operations on a shared volume that a gateway may be killed in. Each is prepared, run (and interrupted), repaired by
 * running it again, and then checked.
 */

import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SandboxId } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../../src/backend/backend.ts";
import type { Marker } from "../../../../src/backend/labels.ts";
import { ensureBound, settleWorkspace } from "../../../../src/backend/workspace-binding.ts";
import type { VolumeWorkspaces } from "../../../../src/backends/kubernetes/workspaces/volume/volume-workspaces.ts";
import type { Owner } from "../../../../src/host/workspaces/homes.ts";
import type { VolumeGround } from "./volume-ground.ts";

/** The subject of a scenario. It travels to another process as JSON. */
export interface Matter {
  readonly key: Owner;
  readonly spot: WorkspaceSpot;
  readonly marker: Marker;
}

export interface Scenario {
  prepare(ground: VolumeGround, key: Owner): Promise<Matter>;
  /** Once, and again after a crash. */
  act(workspaces: VolumeWorkspaces, matter: Matter): Promise<unknown>;
  /** The notes that must exist at every moment, in any place. */
  readonly notes: readonly string[];
  /** The same after the repair. Default: no change. */
  readonly notesAfter?: readonly string[];
  /** The thread's note after the repair; `null` for no workspace, `""` for one without a note. */
  readonly note: string | null;
  /** The place of the workspace after the repair. */
  readonly sight: { readonly home: boolean; readonly slot: boolean; readonly stale?: boolean };
  readonly quarantined?: number;
  /** Slots that are left after the repair. */
  readonly slots: number;
}

async function matter(ground: VolumeGround, key: Owner, spot?: WorkspaceSpot): Promise<Matter> {
  const marker = ground.marker(key);
  const { generation, sandboxId } = marker;
  return { key, marker, spot: spot ?? { ...key, sandboxId, generation, place: "home" } };
}

/** Files that a sandbox can put into its slot: it runs as the same account. */
function plant(mnt: string): void {
  mkdirSync(join(mnt, "planted"));
  writeFileSync(join(mnt, "planted", "note"), "planted");
  symlinkSync("/etc", join(mnt, "link"));
}

export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  "a blank's slot is made": {
    prepare: async (ground, key) => {
      const sandboxId = "blank" as SandboxId;
      const generation = ground.nextGeneration();
      return matter(ground, key, { ...key, sandboxId, generation, place: `slot:blank-${generation}` });
    },
    act: (workspaces, { spot }) => workspaces.prepareSlot(spot.place.slice("slot:".length)),
    ...{ notes: [], note: null, sight: { home: false, slot: false, stale: false }, slots: 1 },
  },
  "an existing workspace is bound": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return matter(ground, key, (await ground.slotFor(key)).spot);
    },
    act: (workspaces, { spot }) => ensureBound(workspaces, spot),
    ...{ notes: ["mine"], note: "mine", sight: { home: false, slot: true, stale: false }, slots: 1 },
  },
  "a new workspace is bound": {
    prepare: async (ground, key) => matter(ground, key, (await ground.slotFor(key)).spot),
    act: (workspaces, { spot }) => ensureBound(workspaces, spot),
    ...{ notes: [], note: "", sight: { home: false, slot: true, stale: false }, slots: 1 },
  },
  "a workspace goes home from a slot where something was planted": {
    async prepare(ground, key) {
      const { spot, mnt } = await ground.boundWith(key, "mine");
      plant(mnt);
      await ground.workspaces.release(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { spot }) => {
      await settleWorkspace(workspaces, spot, false);
      // The backend's repeated work for an object that is still listed.
      await workspaces.release(spot.place);
    },
    ...{ notes: ["mine", "planted"], note: "mine", sight: { home: true, slot: false, stale: false } },
    ...{ slots: 0, quarantined: 1 },
  },
  "a sandbox is destroyed, and then its workspace goes home": {
    prepare: async (ground, key) => matter(ground, key, (await ground.boundWith(key, "mine")).spot),
    act: async (workspaces, { spot }) => {
      await workspaces.release(spot.place);
      await settleWorkspace(workspaces, spot, false);
    },
    ...{ notes: ["mine"], note: "mine", sight: { home: true, slot: false, stale: false }, slots: 0 },
  },
  "a workspace at home is purged": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return matter(ground, key);
    },
    act: (workspaces, { spot }) => settleWorkspace(workspaces, spot, true),
    ...{ notes: [], notesAfter: [], note: null, sight: { home: false, slot: false, stale: false }, slots: 0 },
  },
  "a workspace in a slot is purged": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "mine");
      await ground.workspaces.release(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { spot }) => {
      await settleWorkspace(workspaces, spot, true);
      await workspaces.release(spot.place);
    },
    ...{ notes: [], notesAfter: [], note: null, sight: { home: false, slot: false, stale: false }, slots: 0 },
  },
  "what an older generation has is set aside": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "older");
      await ground.homeWith(key, "mine");
      await ground.workspaces.release(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { spot }) => {
      await settleWorkspace(workspaces, spot, false);
      await workspaces.release(spot.place);
    },
    ...{ notes: ["mine", "older"], note: "mine", sight: { home: true, slot: false, stale: true } },
    ...{ slots: 0, quarantined: 1 },
  },
  "a thread's sandbox is made for the first time": {
    prepare: matter,
    act: (workspaces, { key, marker }) => workspaces.fence(key, marker),
    ...{ notes: [], note: "", sight: { home: true, slot: false, stale: false }, slots: 0 },
  },
  "a thread's sandbox is made again": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return matter(ground, key);
    },
    act: (workspaces, { key, marker }) => workspaces.fence(key, marker),
    ...{ notes: ["mine"], note: "mine", sight: { home: true, slot: false, stale: false }, slots: 0 },
  },
  "a thread's sandbox is made after a purge": {
    async prepare(ground, key) {
      await ground.homeWith(key, "purged");
      const { generation, sandboxId } = ground.marker(key);
      await ground.workspaces.purge({ ...key, generation, sandboxId, place: "home" });
      return matter(ground, key);
    },
    act: (workspaces, { key, marker }) => workspaces.fence(key, marker),
    ...{ notes: [], note: "", sight: { home: true, slot: false, stale: false }, slots: 0 },
  },
  "a thread's sandbox is made while its workspace waits in the slot of a dead one": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "mine");
      await ground.workspaces.release(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { key, marker, spot }) => {
      await workspaces.fence(key, marker);
      await workspaces.release(spot.place);
    },
    ...{ notes: ["mine"], note: "mine", sight: { home: true, slot: false, stale: true }, slots: 0 },
  },
  "a workspace is made without a sandbox": {
    prepare: matter,
    act: async (workspaces, { key }) => (await workspaces.locate(key, { make: true }))?.close(),
    ...{ notes: [], note: "", sight: { home: true, slot: false, stale: false }, slots: 0 },
  },
};
