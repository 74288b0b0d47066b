/**
 * The operations on a workspace that a process may be killed in. Each is prepared, run (and interrupted), repaired by
 * running it again, and then checked.
 */

import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SandboxId } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import type { Marker } from "../../../src/backend/labels.ts";
import { ensureBound, settleWorkspace } from "../../../src/backend/workspace-binding.ts";
import type { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import type { Ground, Key } from "./ground.ts";

/** The subject of a scenario. It travels to another process as JSON. */
export interface Matter {
  readonly key: Key;
  readonly spot: WorkspaceSpot;
  readonly marker: Marker;
}

export interface Scenario {
  prepare(ground: Ground, key: Key): Promise<Matter>;
  /** Once, and again after a crash. */
  act(workspaces: DiskWorkspaces, matter: Matter): Promise<unknown>;
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

async function matter(ground: Ground, key: Key, spot?: WorkspaceSpot): Promise<Matter> {
  const generation = ground.nextGeneration();
  const marker = ground.marker(key, generation);
  return { key, marker, spot: spot ?? { ...key, sandboxId: "none" as SandboxId, generation, place: "home" } };
}

/** Files that a sandbox should not be able to put into its slot, but might. */
function plant(mntPath: string): void {
  mkdirSync(join(mntPath, "planted"));
  writeFileSync(join(mntPath, "planted", "note"), "planted");
  symlinkSync("/etc", join(mntPath, "link"));
}

export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  "an existing workspace is bound": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return matter(ground, key, (await ground.slotFor(key)).spot);
    },
    act: (workspaces, { spot }) => ensureBound(workspaces, spot),
    ...{ notes: ["mine"], note: "mine", sight: { home: false, slot: true }, slots: 1 },
  },
  "a new workspace is bound": {
    prepare: async (ground, key) => matter(ground, key, (await ground.slotFor(key)).spot),
    act: (workspaces, { spot }) => ensureBound(workspaces, spot),
    ...{ notes: [], note: "", sight: { home: false, slot: true }, slots: 1 },
  },
  "a workspace goes home from a slot where something was planted": {
    async prepare(ground, key) {
      const { spot, mntPath } = await ground.boundWith(key, "mine");
      plant(mntPath);
      await ground.workspaces.dropSlot(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { spot }) => {
      await settleWorkspace(workspaces, spot, false);
      // The backend's repeated work for an object that is still listed.
      await workspaces.dropSlot(spot.place);
    },
    ...{ notes: ["mine", "planted"], note: "mine", sight: { home: true, slot: false }, slots: 0, quarantined: 1 },
  },
  "a sandbox is destroyed, and then its workspace goes home": {
    async prepare(ground, key) {
      return matter(ground, key, (await ground.boundWith(key, "mine")).spot);
    },
    act: async (workspaces, { spot }) => {
      await workspaces.dropSlot(spot.place);
      await settleWorkspace(workspaces, spot, false);
    },
    ...{ notes: ["mine"], note: "mine", sight: { home: true, slot: false }, slots: 0 },
  },
  "a workspace at home is purged": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return matter(ground, key);
    },
    act: (workspaces, { spot }) => settleWorkspace(workspaces, spot, true),
    ...{ notes: [], notesAfter: [], note: null, sight: { home: false, slot: false }, slots: 0 },
  },
  "a workspace in a slot is purged": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "mine");
      await ground.workspaces.dropSlot(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { spot }) => {
      await settleWorkspace(workspaces, spot, true);
      await workspaces.dropSlot(spot.place);
    },
    ...{ notes: [], notesAfter: [], note: null, sight: { home: false, slot: false }, slots: 0 },
  },
  "what an older generation has is set aside": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "older");
      await ground.homeWith(key, "mine");
      await ground.workspaces.dropSlot(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { spot }) => {
      await settleWorkspace(workspaces, spot, false);
      await workspaces.dropSlot(spot.place);
    },
    notes: ["mine", "older"],
    note: "mine",
    sight: { home: true, slot: false, stale: true },
    ...{ slots: 0, quarantined: 1 },
  },
  "a thread's sandbox is made for the first time": {
    prepare: matter,
    act: (workspaces, { marker }) => workspaces.prepareHome(marker),
    ...{ notes: [], note: "", sight: { home: true, slot: false }, slots: 0 },
  },
  "a thread's sandbox is made again": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return matter(ground, key);
    },
    act: (workspaces, { marker }) => workspaces.prepareHome(marker),
    ...{ notes: ["mine"], note: "mine", sight: { home: true, slot: false }, slots: 0 },
  },
  "a thread's sandbox is made while its workspace waits in the slot of a dead one": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "mine");
      await ground.workspaces.dropSlot(spot.place);
      return matter(ground, key, spot);
    },
    act: async (workspaces, { marker, spot }) => {
      await workspaces.prepareHome(marker);
      await workspaces.dropSlot(spot.place);
    },
    ...{ notes: ["mine"], note: "mine", sight: { home: true, slot: false, stale: true }, slots: 0 },
  },
};
