/**
 * The paths of a fleet's workspaces on a volume that gateways and pods share. Everything is below one folder of the
 * volume, so that several fleets may share a claim:
 *
 *   t/<threadKey>/made.<nonce>              who it belongs to; the nonce settles a create whose answer was lost
 *   t/<threadKey>/w.<generation>.<sandbox>  the workspace at home, named after its last user; a cold pod mounts it
 *   t/<threadKey>/at.<generation>.<slot>    the workspace was sent to a slot by this generation
 *   t/<threadKey>/gone.<generation>.<sandbox>  this generation has purged the thread
 *   s/<sandboxId>-<generation>/mnt          what a blank mounts at `/mnt`; a workspace arrives as `mnt/user-data`
 *   s/<slot>/tenant.<threadKey>.<generation>.<inode>  a workspace that was sent here
 *   released/<slot>/                        the same slot when nothing of its sandbox runs any more
 *   new/<random>                            what is being made; a rename puts it in place, complete
 *   quarantine/, trash/                     as on one machine
 *
 * Invariants
 * - No path contains user input. Names from a store or an engine are checked before they become part of a path.
 * - A record is the name of a file, so it is never half written, and one call changes it.
 * - Directories on the way to a mount can be traversed by other accounts: the kubelet may be one (root_squash).
 */

import { join } from "node:path";
import { type Generation, type SandboxId, SandlotError, type ThreadKey } from "@sandlot/contract";
import { parseSlotName, USER_DATA } from "../../../../host/workspaces/layout.ts";

/** The sandbox in the name of a workspace that no sandbox has used yet. */
export const NO_SANDBOX = "none" as SandboxId;
/** In the root of a workspace: shows a blank's daemon that the workspace has arrived. */
export const ARRIVED = ".sandlot-arrived";
/** Other accounts may traverse it, but not list it. */
export const PASSABLE = 0o711;

const PATH_NAME = /^[A-Za-z0-9_-]{1,100}$/;

export class VolumeLayout {
  readonly root: string;
  readonly threads: string;
  readonly slots: string;
  readonly released: string;
  readonly drafts: string;
  readonly quarantine: string;
  readonly trash: string;

  constructor(root: string) {
    this.root = root;
    this.threads = join(root, "t");
    this.slots = join(root, "s");
    this.released = join(root, "released");
    this.drafts = join(root, "new");
    this.quarantine = join(root, "quarantine");
    this.trash = join(root, "trash");
  }

  thread(thread: ThreadKey): string {
    return join(this.threads, checkedName(thread));
  }

  home(thread: ThreadKey, name: string): string {
    return join(this.thread(thread), name);
  }

  /** Where a blank's workspace arrives, while its sandbox may run. */
  arrival(slot: string): string {
    return join(this.slots, checkedName(slot), "mnt", USER_DATA);
  }

  slot(slot: string): string {
    return join(this.slots, checkedName(slot));
  }

  releasedSlot(slot: string): string {
    return join(this.released, checkedName(slot));
  }

  draft(random: string): string {
    return join(this.drafts, checkedName(random));
  }
}

/** A generation of a sandbox that used a workspace. Generations may repeat after a store was lost. */
export interface VolumeUse {
  readonly generation: Generation;
  readonly sandboxId: SandboxId;
}

/** What the name of a file in a thread's directory says. */
export type ThreadRecord = VolumeUse &
  (
    | { readonly kind: "home" | "gone"; readonly name: string }
    | { readonly kind: "at"; readonly name: string; readonly slot: string }
  );

export interface SlotTenant {
  readonly thread: ThreadKey;
  readonly generation: Generation;
  /** Of the directory itself, so that another directory of the same name is not mistaken for it. */
  readonly inode: bigint;
  readonly name: string;
}

export function homeName({ generation, sandboxId }: VolumeUse): string {
  return `w.${generation}.${checkedName(sandboxId)}`;
}

export function goneName({ generation, sandboxId }: VolumeUse): string {
  return `gone.${generation}.${checkedName(sandboxId)}`;
}

export function atName(generation: Generation, slot: string): string {
  return `at.${generation}.${checkedName(slot)}`;
}

export function tenantName({ thread, generation, inode }: Omit<SlotTenant, "name">): string {
  return `tenant.${checkedName(thread)}.${generation}.${inode}`;
}

export function parseRecord(name: string): ThreadRecord | null {
  const match = /^(w|at|gone)\.(\d{1,16})\.([A-Za-z0-9_-]{1,100})$/.exec(name);
  if (match === null) return null;
  const [, prefix, digits = "", last = ""] = match;
  const generation = Number(digits) as Generation;
  if (prefix !== "at")
    return { kind: prefix === "w" ? "home" : "gone", name, generation, sandboxId: last as SandboxId };
  const slot = parseSlotName(last);
  return slot === null ? null : { kind: "at", name, generation, sandboxId: slot.sandboxId, slot: last };
}

export function parseTenant(name: string): SlotTenant | null {
  const match = /^tenant\.([0-9a-f]+)\.(\d{1,16})\.(\d+)$/.exec(name);
  if (match === null) return null;
  const [, thread = "", generation = "", inode = ""] = match;
  return { thread: thread as ThreadKey, generation: Number(generation) as Generation, inode: BigInt(inode), name };
}

function checkedName(name: string): string {
  if (PATH_NAME.test(name)) return name;
  throw new SandlotError("invalid_path", { path: name, problem: "it cannot be a name on the workspaces volume" });
}
