/**
 * Workspaces on one claim that all pods and gateways mount (ReadWriteMany). `volume/` has the steps; they run in a process
 * of their own, so this process makes no call to the volume and none of its calls waits longer than its deadline.
 */

import { join } from "node:path";
import { WORKSPACE_ROOT } from "@sandlot/contract";
import type { Place, WorkspaceSight, WorkspaceSpot } from "../../../backend/backend.ts";
import type { HostWorkspaces } from "../../../backend/host-workspaces.ts";
import { threadKeyOf } from "../../../backend/labels.ts";
import type { Owner } from "../../../host/workspaces/homes.ts";
import { parseSlotName, placeOf, slotNameOf } from "../../../host/workspaces/layout.ts";
import type { World } from "../../../world/world.ts";
import { checkRoom } from "./disk-watch.ts";
import type { Arrival, Leftover, PodSpec, PodVolume, PodWorkspaces } from "./pod-workspaces.ts";
import { sharedFiles } from "./shared-files.ts";
import { ARRIVED, homeName, VolumeLayout } from "./volume/layout.ts";
import type { PlaceMethod } from "./volume/local-place.ts";
import { VolumeProcess } from "./volume/volume-process.ts";
import { arrivalNonce } from "./volume/volume-workspaces.ts";
import type { VolumePlace } from "./volume-trial.ts";

export interface SharedOptions {
  readonly claimName: string;
  /** Where this process mounts the claim. */
  readonly mountPath: string;
  /** The fleet's own folder on the volume. */
  readonly folder: string;
  readonly world: World;
  /** What the trial of the volume has shown. */
  readonly hasLateBinding: boolean;
  /** Whether any blueprint has a disk limit. */
  readonly isBudgeted?: boolean;
  readonly deadlineMs?: number;
  /** The account of sandboxes: a gateway that runs as root uses the volume as this one. */
  readonly account?: { readonly uid: number; readonly gid: number };
  /** A failure that no call can report. */
  readonly onProblem?: (problem: string) => void;
}

/** A walk through all threads, or the removal of a big workspace. */
const LONG_MS = 600_000;

export class SharedWorkspaces implements PodWorkspaces {
  readonly hasLateBinding: boolean;
  readonly files: HostWorkspaces;
  /** The process of the volume, for measurements and the trial. */
  readonly volume: VolumeProcess;
  readonly #options: SharedOptions;
  readonly #layout: VolumeLayout;

  constructor(options: SharedOptions) {
    const { mountPath, folder, world, deadlineMs, onProblem, account, isBudgeted = false } = options;
    this.#options = options;
    this.hasLateBinding = options.hasLateBinding;
    this.volume = new VolumeProcess({
      ...{ root: join(mountPath, folder), world },
      ...(deadlineMs !== undefined && { deadlineMs }),
      ...(account !== undefined && { account }),
      ...(onProblem !== undefined && { onProblem }),
    });
    this.files = sharedFiles(this.volume, { isBudgeted });
    // Paths of a pod's mount are relative to the claim.
    this.#layout = new VolumeLayout(folder);
  }

  async prepare(spec: PodSpec): Promise<PodVolume> {
    checkRoom(await this.volume.call("room", []));
    const place = placeOf(spec);
    const { claimName } = this.#options;
    const { marker } = spec;
    if (marker === null) {
      const slot = slotNameOf(place) ?? "";
      await this.volume.call("prepareSlot", [slot]);
      return { place, claimName, subPath: join(this.#layout.slot(slot), "mnt"), mountPath: "/mnt" };
    }
    const home = this.#layout.home(threadKeyOf(marker.user, marker.thread), homeName(marker));
    return { place, claimName, subPath: home, mountPath: WORKSPACE_ROOT };
  }

  async fence({ marker }: PodSpec): Promise<"existing" | "new" | "none"> {
    if (marker === null) return "none";
    const { user, thread, generation, sandboxId } = marker;
    return this.volume.call("fence", [
      { user, thread },
      { generation, sandboxId },
    ]);
  }

  release(place: Place): Promise<"dropped" | "occupied"> {
    return this.volume.call("release", [place]);
  }

  isOccupied(place: Place): Promise<boolean> {
    return this.volume.call("isOccupied", [place]);
  }

  arrival({ generation, place }: Pick<WorkspaceSpot, "generation" | "place">): Arrival | null {
    const slot = slotNameOf(place);
    return slot === null ? null : { path: `${WORKSPACE_ROOT}/${ARRIVED}`, nonce: arrivalNonce(slot, generation) };
  }

  owners(): Promise<readonly Owner[]> {
    return this.volume.call("owners", [], { deadlineMs: LONG_MS });
  }

  latestGeneration(): Promise<number> {
    return this.volume.call("latestGeneration", [], { deadlineMs: LONG_MS });
  }

  look(spot: WorkspaceSpot): Promise<WorkspaceSight> {
    return this.volume.call("look", [spot]);
  }

  moveIn(spot: WorkspaceSpot): Promise<void> {
    return this.volume.call("moveIn", [spot]);
  }

  makeIn(spot: WorkspaceSpot): Promise<void> {
    return this.volume.call("makeIn", [spot]);
  }

  moveHome(spot: WorkspaceSpot): Promise<void> {
    return this.volume.call("moveHome", [spot]);
  }

  quarantine(spot: WorkspaceSpot): Promise<void> {
    return this.volume.call("quarantine", [spot]);
  }

  purge(spot: WorkspaceSpot): Promise<void> {
    return this.volume.call("purge", [spot], { deadlineMs: LONG_MS });
  }

  emptyHome(spot: WorkspaceSpot): Promise<void> {
    return this.volume.call("emptyHome", [spot], { deadlineMs: LONG_MS });
  }

  async sweep(isKnown: (leftover: Leftover) => Promise<boolean>): Promise<void> {
    const known: string[] = [];
    for (const slot of await this.volume.call("openSlots", [])) {
      const { sandboxId = null, generation = null } = parseSlotName(slot) ?? {};
      if (await isKnown({ sandboxId, generation, threadKey: null })) known.push(slot);
    }
    await this.volume.call("sweep", [known], { deadlineMs: LONG_MS });
  }

  /** This process's mount of the volume, as a place for the trial. */
  place(): VolumePlace {
    const run = (method: PlaceMethod, ...args: readonly string[]) => this.volume.call("trial", [{ method, args }]);
    return {
      name: "gateway",
      // The process of the volume leaves root behind.
      uid: process.getuid?.() === 0 ? (this.#options.account?.uid ?? 0) : (process.getuid?.() ?? 0),
      makeDirectory: (path) => run("makeDirectory", path) as Promise<void>,
      write: (path, content) => run("write", path, content) as Promise<void>,
      read: (path) => run("read", path) as Promise<string | null>,
      stat: (path) => run("stat", path) as ReturnType<VolumePlace["stat"]>,
      rename: (from, to) => run("rename", from, to) as Promise<"done" | "refused">,
      removeTree: (path) => run("removeTree", path) as Promise<void>,
    };
  }

  close(): Promise<void> {
    return this.volume.close();
  }
}
