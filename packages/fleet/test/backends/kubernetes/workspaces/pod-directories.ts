/**
 * `SharedWorkspaces` behind the calls of a backend whose sandboxes are directories: what a cluster would mount into a pod is
 * a path here. Markers are in memory, as they would be in a Secret of the cluster.
 */

import { join } from "node:path";
import { type Generation, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Place } from "../../../../src/backend/backend.ts";
import type { Marker } from "../../../../src/backend/labels.ts";
import type { Markers } from "../../../../src/backend/markers.ts";
import { SharedWorkspaces } from "../../../../src/backends/kubernetes/workspaces/shared-workspaces.ts";
import { slotNameOf } from "../../../../src/host/workspaces/layout.ts";
import type { DirectoryWorkspaces } from "../../../host/workspaces/disk-backend.ts";
import { world } from "./volume-ground.ts";

/** The markers of all pods, which outlive every gateway. */
export type MarkerTable = Map<SandboxId, Marker[]>;

export function podDirectories(
  mountPath: string,
  table: MarkerTable,
): DirectoryWorkspaces & { readonly shared: SharedWorkspaces } {
  const folder = "fleet";
  const shared = new SharedWorkspaces({ claimName: "claim", mountPath, folder, world, hasLateBinding: true });
  const markers = markersIn(table);
  const labels = (sandboxId: SandboxId, generation: Generation) =>
    ({ labels: { sandboxId, generation }, marker: null }) as never;
  /** What the backend does when a slot is empty: the pod's object goes, and its Secret with it. */
  const dropIfEmpty = async (place: Place, sandboxId: SandboxId) => {
    if (!(await shared.isOccupied(place))) table.delete(sandboxId);
  };
  const settling =
    (step: "moveHome" | "quarantine" | "purge") =>
    async (spot: Parameters<SharedWorkspaces["moveHome"]>[0]): Promise<void> => {
      await shared[step](spot);
      if (spot.place !== "home") await dropIfEmpty(spot.place, spot.sandboxId);
    };
  return {
    shared,
    markers,
    look: (spot) => shared.look(spot),
    moveIn: (spot) => shared.moveIn(spot),
    makeIn: (spot) => shared.makeIn(spot),
    moveHome: settling("moveHome"),
    quarantine: settling("quarantine"),
    purge: settling("purge"),
    owners: () => shared.owners(),
    latestGeneration: () => shared.latestGeneration(),
    async prepareHome(marker) {
      const spec = { labels: marker, marker } as never;
      const { subPath } = await shared.prepare(spec);
      const workspace = await shared.fence(spec);
      table.set(marker.sandboxId, [marker]);
      return { userDataPath: join(mountPath, subPath ?? ""), existing: workspace === "existing" };
    },
    async prepareSlot(sandboxId, generation) {
      const { place, subPath } = await shared.prepare(labels(sandboxId, generation));
      table.set(sandboxId, []);
      return { place: place as Exclude<Place, "home">, mntPath: join(mountPath, subPath ?? "") };
    },
    async dropSlot(place) {
      const released = await shared.release(place);
      const slot = slotNameOf(place) ?? "";
      if (released === "dropped") table.delete(slot.slice(0, slot.lastIndexOf("-")) as SandboxId);
      return released;
    },
    dropMarkers: async (sandboxId) => void table.delete(sandboxId),
    async slots() {
      const open = await shared.volume.call("openSlots", []);
      const waiting: Place[] = [];
      for (const sandboxId of table.keys()) waiting.push(...(await occupied(shared, sandboxId)));
      return [...open.map((name) => ({ place: `slot:${name}` as Place })), ...waiting.map((place) => ({ place }))];
    },
    close: () => shared.close(),
  };
}

/** Released slots that still have a workspace: their pods' objects stay. */
async function occupied(shared: SharedWorkspaces, sandboxId: SandboxId): Promise<Place[]> {
  const places: Place[] = [];
  for (const name of await shared.volume.call("releasedSlots", []))
    if (name.startsWith(`${sandboxId}-`) && (await shared.isOccupied(`slot:${name}`))) places.push(`slot:${name}`);
  return places;
}

function markersIn(table: MarkerTable): Markers {
  return {
    async write(marker) {
      const present = table.get(marker.sandboxId);
      if (present === undefined) throw new SandlotError("file_not_found", { path: `markers:${marker.sandboxId}` });
      const before = present.find(({ generation }) => generation === marker.generation);
      if (before === undefined) present.push(marker);
      else if (before.token !== marker.token)
        throw new SandlotError("file_exists", { path: `markers:${marker.sandboxId}` });
    },
    list: async (sandboxId) => [...(table.get(sandboxId) ?? [])],
    async drop(sandboxId, generation) {
      const present = table.get(sandboxId);
      if (present !== undefined)
        table.set(
          sandboxId,
          present.filter((one) => one.generation !== generation),
        );
    },
  };
}
