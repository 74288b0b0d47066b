/** Assembles the parts of workspaces on a disk. Creates the directories that the other parts expect. */

import { chmodSync, mkdirSync } from "node:fs";
import type { World } from "../../world/world.ts";
import { Homes } from "./homes.ts";
import { Layout } from "./layout.ts";
import { DiskLocks } from "./locks.ts";
import { MarkerFiles } from "./markers.ts";
import { Owners } from "./owners.ts";
import { Quarantine } from "./quarantine.ts";
import { Slots } from "./slots.ts";
import { Trash } from "./trash.ts";
import type { Account } from "./tree.ts";

export interface DiskOptions {
  /** The fleet's own directory; created when missing. */
  readonly root: string;
  /** The usual owner of workspaces; `null` when that is the fleet's own account. */
  readonly account: Account;
  readonly world: World;
  /** Whether sandboxes reach their files through the host's path. If not, the fleet's directory is closed to others. */
  readonly isPassable?: boolean;
  /** How long a step waits for another process's. */
  readonly lockPatienceMs?: number;
}

const PRIVATE = 0o700;
/** Other accounts may traverse it, but not list it. */
const PASSABLE = 0o711;

export class DiskParts {
  readonly layout: Layout;
  readonly account: Account;
  readonly world: World;
  readonly locks: DiskLocks;
  readonly trash: Trash;
  readonly homes: Homes;
  readonly slots: Slots;
  readonly owners: Owners;
  readonly markers: MarkerFiles;
  readonly quarantine: Quarantine;

  constructor({ root, account, world, isPassable = false, lockPatienceMs }: DiskOptions) {
    const passable = account === null ? PRIVATE : PASSABLE;
    const layout = new Layout(root);
    mkdirSync(root, { recursive: true, mode: PRIVATE });
    // A sandbox controls the modes of its files; this directory controls who can reach them.
    own(layout.root, isPassable ? passable : PRIVATE);
    for (const path of [layout.homes, layout.slots]) own(path, passable);
    for (const path of [layout.markers, layout.quarantine, layout.trash, layout.locks]) own(path, PRIVATE);
    this.layout = layout;
    this.account = account;
    this.world = world;
    this.locks = new DiskLocks(layout.locks, world, lockPatienceMs);
    this.trash = new Trash(layout.trash, world);
    this.homes = new Homes(layout, this.trash, account, passable);
    this.slots = new Slots(layout, passable);
    this.owners = new Owners(this);
    this.markers = new MarkerFiles(layout, world);
    this.quarantine = new Quarantine(layout, this.trash, world);
  }
}

function own(path: string, mode: number): void {
  mkdirSync(path, { recursive: true, mode });
  chmodSync(path, mode);
}
