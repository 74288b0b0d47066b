/**
 * The paths of a fleet's workspaces on the disk. Everything is below one directory, so that it can be one mount:
 *
 *   homes/<threadKey>/user-data            a thread's workspace at home
 *   homes/<threadKey>/fence.*              the newest generation that used it, and where it was put (`fence.ts`)
 *   homes/<threadKey>/names.json           its owner, for the operator
 *   homes/<threadKey>/giving               the account that the workspace is being given to (`owners.ts`)
 *   homes/<threadKey>/restore.*            a restore is unfinished (`fence.ts`)
 *   homes/<threadKey>/new                  a workspace that is being created
 *   homes/<threadKey>/.sandlot-draft-*     an unfinished copy, or what a restore moves in (`drafts.ts`)
 *   slots/<sandboxId>-<generation>/mnt     what a blank mounts at `/mnt`; a workspace arrives as `mnt/user-data`
 *   slots/<sandboxId>-<generation>/spare   a preallocated empty workspace, for a thread that has none
 *   slots/<sandboxId>-<generation>/home    a preallocated home, for a thread that has none
 *   slots/<sandboxId>-<generation>/tenant.* the thread whose workspace is in it, and its inode (`fence.ts`)
 *   slots/<sandboxId>-<generation>/owner   the account of its sandbox, where workspaces are given to it (`owners.ts`)
 *   slots/<sandboxId>-<generation>/released its sandbox is gone
 *   markers/<sandboxId>/<generation>.json  the thread that got the sandbox; `.ahead` becomes the first (`made-ahead.ts`)
 *   checkpoints/                           copies of workspaces (`host/checkpoints/layout.ts`)
 *   quarantine/<slot>.<random>             content of a slot that is no workspace
 *   homes/.trash/                          what is being removed; on the same mount as every home
 *   locks/
 *
 * Invariants
 * - No path contains user input: threads appear as hashes, sandboxes as random ids.
 * - Names from a store or an engine are checked before they become part of a path.
 */

import { join } from "node:path";
import { type Generation, type SandboxId, SandlotError, type ThreadKey } from "@sandlot/contract";
import type { CreateSpec, Place } from "../../backend/backend.ts";

export type SlotPlace = Exclude<Place, "home">;

/** The name below a home, below `mnt`, and so below `/mnt` in the sandbox. */
export const USER_DATA = "user-data";
/** Beside a workspace at home whose files belong to two accounts, because its change of owner is unfinished. */
export const GIVING = "giving";
/** The target of `/mnt/acp-workspace`: below `user-data`, so that one rename moves it too. */
export const ACP_DIRECTORY = ".acp-workspace";
export const ACP_LINK = "acp-workspace";
export const ACP_TARGET = `${USER_DATA}/${ACP_DIRECTORY}`;

/** A dot separates the parts of a record's file name, so no part contains one. */
const PATH_NAME = /^[A-Za-z0-9_-]{1,100}$/;

export class Layout {
  readonly root: string;
  readonly homes: string;
  readonly slots: string;
  readonly markers: string;
  readonly quarantine: string;
  readonly trash: string;
  readonly locks: string;

  constructor(root: string) {
    this.root = root;
    this.homes = join(root, "homes");
    this.slots = join(root, "slots");
    this.markers = join(root, "markers");
    this.quarantine = join(root, "quarantine");
    this.trash = join(this.homes, ".trash");
    this.locks = join(root, "locks");
  }

  home(thread: ThreadKey): string {
    return join(this.homes, checkedName(thread));
  }

  userData(thread: ThreadKey): string {
    return join(this.home(thread), USER_DATA);
  }

  /** Where a workspace is created before it is moved to its place. */
  draft(thread: ThreadKey): string {
    return join(this.home(thread), "new");
  }

  slot(name: string): string {
    return join(this.slots, checkedName(name));
  }

  /** An empty workspace for a thread that has none, out of the sandbox's reach. */
  spare(name: string): string {
    return join(this.slot(name), "spare");
  }

  /** A home without a thread. */
  spareHome(name: string): string {
    return join(this.slot(name), "home");
  }

  mnt(name: string): string {
    return join(this.slot(name), "mnt");
  }

  markersOf(sandboxId: SandboxId): string {
    return join(this.markers, checkedName(sandboxId));
  }
}

export function slotPlace(sandboxId: SandboxId, generation: Generation): SlotPlace {
  return `slot:${checkedName(`${sandboxId}-${generation}`)}`;
}

/** Where a sandbox's workspace is mounted from: a blank has a slot. */
export function placeOf({ marker, labels }: Pick<CreateSpec, "marker" | "labels">): Place {
  return marker === null ? `slot:${labels.sandboxId}-${labels.generation}` : "home";
}

/** The directory name of a slot; `null` for a home. */
export function slotNameOf(place: Place): string | null {
  return place === "home" ? null : checkedName(place.slice("slot:".length));
}

/** The parts of a slot's name; `null` when it is no slot's name. */
export function parseSlotName(name: string): { sandboxId: SandboxId; generation: Generation } | null {
  const match = /^([A-Za-z0-9_-]{1,80})-(\d{1,16})$/.exec(name);
  if (match === null) return null;
  return { sandboxId: match[1] as SandboxId, generation: Number(match[2]) as Generation };
}

function checkedName(name: string): string {
  if (PATH_NAME.test(name)) return name;
  throw new SandlotError("invalid_path", { path: name, problem: "it cannot be a name below the fleet's directory" });
}
