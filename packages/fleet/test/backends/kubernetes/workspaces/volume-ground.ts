/** A directory of its own that stands for a shared volume, with workspaces on it and shortcuts for a test's setup. */

import { existsSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BlueprintHash, Generation, SandboxId, ThreadId, Token, UserId } from "@sandlot/contract";
import { isSandlotError } from "@sandlot/contract";
import type { Place, WorkspaceSpot } from "../../../../src/backend/backend.ts";
import { type Marker, threadKeyOf } from "../../../../src/backend/labels.ts";
import { VolumeLayout } from "../../../../src/backends/kubernetes/workspaces/volume/layout.ts";
import { VolumeWorkspaces } from "../../../../src/backends/kubernetes/workspaces/volume/volume-workspaces.ts";
import type { Owner } from "../../../../src/host/workspaces/homes.ts";
import { slotPlace } from "../../../../src/host/workspaces/layout.ts";
import { systemWorld } from "../../../../src/world/system-world.ts";

export const world = systemWorld();
export const NOTE = "workspace/note";

export class VolumeGround {
  readonly root: string;
  readonly layout: VolumeLayout;
  readonly workspaces: VolumeWorkspaces;
  readonly #owns: boolean;
  #count = 1_000;

  static async open(root?: string): Promise<VolumeGround> {
    const ground = new VolumeGround(root);
    await ground.workspaces.open();
    return ground;
  }

  /** In memory where possible: frequent tests need not wait for a disk. */
  constructor(root?: string) {
    this.#owns = root === undefined;
    const memory = "/dev/shm";
    this.root = root ?? mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), "sandlot-volume-"));
    this.layout = new VolumeLayout(this.root);
    this.workspaces = this.peer();
  }

  /** The same volume in another gateway. */
  peer(): VolumeWorkspaces {
    const onProblem = (problem: string) => {
      throw new Error(problem);
    };
    return new VolumeWorkspaces({ root: this.root, world, onProblem });
  }

  nextGeneration(): Generation {
    return ++this.#count as Generation;
  }

  newKey(): Owner {
    const name = world.randomHex(4);
    return { user: `user-${name}` as UserId, thread: `thread-${name}` as ThreadId };
  }

  marker(key: Owner, generation = this.nextGeneration(), sandboxId = world.randomHex(10) as SandboxId): Marker {
    const token = world.randomHex(8) as Token;
    return { ...key, sandboxId, generation, token, blueprint: "default", blueprintHash: "hash" as BlueprintHash };
  }

  /** A home that a sandbox has used, with a note in it. */
  async homeWith(key: Owner, content: string): Promise<string> {
    const marker = this.marker(key);
    await this.workspaces.fence(key, marker);
    const home = this.homePath(key);
    writeFileSync(join(home, NOTE), content);
    return home;
  }

  /** A blank's slot, and the spot of a thread's workspace in it. */
  async slotFor(key: Owner): Promise<{ spot: WorkspaceSpot; mnt: string; slot: string }> {
    const sandboxId = world.randomHex(10) as SandboxId;
    const place: Place = slotPlace(sandboxId, this.nextGeneration());
    const slot = place.slice("slot:".length);
    await this.workspaces.prepareSlot(slot);
    const spot = { ...key, sandboxId, generation: this.nextGeneration(), place };
    return { spot, mnt: join(this.layout.slot(slot), "mnt"), slot };
  }

  /** A thread's workspace in a slot, with a note in it. */
  async boundWith(key: Owner, content: string): Promise<{ spot: WorkspaceSpot; mnt: string; slot: string }> {
    const made = await this.slotFor(key);
    await this.workspaces.makeIn(made.spot);
    writeFileSync(join(made.mnt, "user-data", NOTE), content);
    return made;
  }

  /** The one workspace at home. */
  homePath({ user, thread }: Owner): string {
    const directory = this.layout.thread(threadKeyOf(user, thread));
    const names = readdirSync(directory).filter((name) => name.startsWith("w."));
    if (names.length !== 1) throw new Error(`${names.length} workspaces at home: ${names}`);
    return join(directory, names[0] ?? "");
  }

  /** The note of a thread, read through `locate`; `null` when there is no workspace. */
  async note(key: Owner): Promise<string | null> {
    const handle = await this.peer().locate(key);
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

  /** Every file called `note` outside the trash, with its content: all existing data. */
  notes(): string[] {
    const found = globSync(["t/**/note", "s/**/note", "released/**/note", "quarantine/**/note", "new/**/note"], {
      cwd: this.root,
    });
    return found.map((path) => readFileSync(join(this.root, path), "utf8")).sort();
  }

  names(area: "threads" | "slots" | "released" | "drafts" | "quarantine" | "trash"): string[] {
    return readdirSync(this.layout[area])
      .filter((name) => !(area === "quarantine" && name.endsWith(".json")))
      .sort();
  }

  dispose(): void {
    if (this.#owns) rmSync(this.root, { recursive: true, force: true });
  }
}

/** The code of a promise's rejection, or its result. */
export function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => (isSandlotError(error) ? error.code : String(error)));
}
