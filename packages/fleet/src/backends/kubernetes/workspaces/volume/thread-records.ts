/**
 * The records of one thread at one moment, and what follows from them. Pure: the names, and for homes the inodes, were
 * read before.
 *
 * - The latest generation in any record is the fence. A use is stale when a later one is recorded, or another sandbox in
 *   the same generation.
 * - The workspace at home is the one with the latest generation. One with an earlier generation is a leftover.
 */

import { type SandboxId, SandlotError } from "@sandlot/contract";
import { homeName, NO_SANDBOX, type ThreadRecord, type VolumeUse } from "./layout.ts";

export interface HomeRecord extends VolumeUse {
  readonly kind: "home";
  readonly name: string;
  readonly inode: bigint;
}

type AtRecord = Extract<ThreadRecord, { kind: "at" }>;

export class ThreadRecords {
  /** Ascending by generation. */
  readonly homes: readonly HomeRecord[];
  readonly ats: readonly AtRecord[];
  readonly gones: readonly ThreadRecord[];
  /** The files that say who it belongs to; one, unless a purge was interrupted. */
  readonly made: readonly string[];
  /** Directories named like a workspace that belong to another account: a kubelet makes what a pod mounts and misses. */
  readonly foreign: readonly string[];

  constructor(parts: {
    readonly homes: readonly HomeRecord[];
    readonly others: readonly ThreadRecord[];
    readonly made: readonly string[];
    readonly foreign: readonly string[];
  }) {
    this.homes = parts.homes.toSorted(byGeneration);
    this.ats = parts.others.filter((one) => one.kind === "at").toSorted(byGeneration);
    this.gones = parts.others.filter(({ kind }) => kind === "gone").toSorted(byGeneration);
    this.made = parts.made;
    this.foreign = parts.foreign;
  }

  get home(): HomeRecord | null {
    return this.homes.at(-1) ?? null;
  }

  /** Where the workspace was sent last; `null` when no record says so. */
  get at(): AtRecord | null {
    return this.ats.at(-1) ?? null;
  }

  get last(): VolumeUse {
    const all = [...this.homes, ...this.gones, ...this.ats].toSorted(byGeneration);
    return all.at(-1) ?? { generation: 0 as VolumeUse["generation"], sandboxId: NO_SANDBOX };
  }

  /** The name of a workspace that is made here: the same for all that make one now, so that only one succeeds. */
  get nextHome(): string {
    return homeName(this.last);
  }

  isStale({ generation, sandboxId }: VolumeUse): boolean {
    return [...this.homes, ...this.ats, ...this.gones].some(
      (one) =>
        one.generation > generation ||
        (one.generation === generation && one.sandboxId !== NO_SANDBOX && one.sandboxId !== sandboxId),
    );
  }

  checkFence(use: { readonly sandboxId: SandboxId; readonly generation: VolumeUse["generation"] }): void {
    if (!this.isStale(use)) return;
    const { sandboxId, generation } = use;
    throw new SandlotError("stale_generation", { sandboxId, generation, current: this.last.generation });
  }

  /** Whether both show the same moment. */
  equals(other: ThreadRecords | null): boolean {
    return other !== null && this.#names() === other.#names();
  }

  #names(): string {
    return [...this.homes, ...this.ats, ...this.gones].map(({ name }) => name).join("/");
  }
}

function byGeneration(a: VolumeUse, b: VolumeUse): number {
  return a.generation - b.generation;
}
