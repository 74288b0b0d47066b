/** A separate directory for a test, with workspaces on it and shortcuts for its setup. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type BlueprintHash,
  type Generation,
  isSandlotError,
  type SandboxId,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import { type Marker, threadKeyOf } from "../../../src/backend/labels.ts";
import { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import { Layout } from "../../../src/host/workspaces/layout.ts";
import type { Account } from "../../../src/host/workspaces/tree.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

export const world = systemWorld();
export const isRoot = process.getuid?.() === 0;
/** The owner of workspaces when the tests run as root. The account need not exist. */
export const account: Account = isRoot ? { uid: 59_997, gid: 59_997 } : null;
export const NOTE = "workspace/note";

export interface Key {
  readonly user: UserId;
  readonly thread: ThreadId;
}

export class Ground {
  readonly root: string;
  readonly layout: Layout;
  readonly workspaces: DiskWorkspaces;
  readonly #opened: DiskWorkspaces[] = [];
  #owns: boolean;
  #count = 1_000;

  /** In memory where possible: frequent tests need not wait for a disk. */
  static fast(): Ground {
    const memory = "/dev/shm";
    const ground = new Ground(mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), "sandlot-disk-")));
    ground.#owns = true;
    return ground;
  }

  constructor(root?: string) {
    this.#owns = root === undefined;
    this.root = root ?? mkdtempSync(join(tmpdir(), "sandlot-disk-"));
    this.layout = new Layout(this.root);
    this.workspaces = this.peer();
  }

  /** The same workspaces in another process. */
  peer(): DiskWorkspaces {
    const workspaces = new DiskWorkspaces({ root: this.root, account, world, lockPatienceMs: 5_000 });
    this.#opened.push(workspaces);
    return workspaces;
  }

  nextGeneration(): Generation {
    return ++this.#count as Generation;
  }

  newKey(): Key {
    const name = world.randomHex(4);
    return { user: `user-${name}` as UserId, thread: `thread-${name}` as ThreadId };
  }

  marker(key: Key, generation = this.nextGeneration(), sandboxId = world.randomHex(10) as SandboxId): Marker {
    const token = world.randomHex(8) as Token;
    return { ...key, sandboxId, generation, token, blueprint: "default", blueprintHash: "hash" as BlueprintHash };
  }

  /** An unused home with a note in it. */
  async homeWith(key: Key, content: string): Promise<string> {
    const marker = this.marker(key);
    const { userDataPath } = await this.workspaces.prepareHome(marker);
    writeFileSync(join(userDataPath, NOTE), content);
    await this.workspaces.dropMarkers(marker.sandboxId);
    return userDataPath;
  }

  /** A blank's slot, and the spot of a thread's workspace in it. */
  async slotFor(key: Key): Promise<{ spot: WorkspaceSpot; mntPath: string }> {
    const sandboxId = world.randomHex(10) as SandboxId;
    const { place, mntPath } = await this.workspaces.prepareSlot(sandboxId, this.nextGeneration());
    const spot = { ...key, sandboxId, generation: this.nextGeneration(), place };
    await this.workspaces.markers.write(this.marker(key, spot.generation, sandboxId));
    return { spot, mntPath };
  }

  /** A thread's workspace in a slot, with a note in it. */
  async boundWith(key: Key, content: string): Promise<{ spot: WorkspaceSpot; mntPath: string }> {
    const slot = await this.slotFor(key);
    await this.workspaces.makeIn(slot.spot);
    writeFileSync(join(slot.mntPath, "user-data", NOTE), content);
    return slot;
  }

  homePath(key: Key): string {
    return this.layout.userData(threadKeyOf(key.user, key.thread));
  }

  /** The note of a thread, read through `locate`; `null` when there is no workspace. */
  async note(key: Key): Promise<string | null> {
    const handle = await this.workspaces.locate(key);
    if (handle === null) return null;
    try {
      return Buffer.from(await handle.files.read(NOTE)).toString();
    } catch (error) {
      if (isSandlotError(error, "file_not_found")) return "";
      throw error;
    } finally {
      handle.close();
    }
  }

  /** Every file called `note` below homes, slots and quarantine, with its content: all existing data. */
  notes(): string[] {
    const found: string[] = [];
    for (const area of [this.layout.homes, this.layout.slots, this.layout.quarantine]) {
      for (const entry of readdirSync(area, { recursive: true, withFileTypes: true })) {
        if (entry.name === "note" && entry.isFile() && !entry.parentPath.includes("/.trash/"))
          found.push(readFileSync(join(entry.parentPath, entry.name), "utf8"));
      }
    }
    return found.sort();
  }

  /** Names in a directory of the layout, to check that nothing is left. */
  names(area: "homes" | "slots" | "markers" | "quarantine" | "trash"): string[] {
    return readdirSync(this.layout[area])
      .filter((name) => name !== ".trash" && !(area === "quarantine" && name.endsWith(".json")))
      .sort();
  }

  dispose(): void {
    for (const workspaces of this.#opened) workspaces.close();
    if (this.#owns) rmSync(this.root, { recursive: true, force: true });
  }
}

/** The code of a promise's rejection, or its result. */
export function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => (isSandlotError(error) ? error.code : String(error)));
}
