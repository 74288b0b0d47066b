/**
 * Reports for a workspace whose budget the kernel enforces. The kernel refuses what does not fit, and counts no
 * refusals; but the free space of the directory shows what is left of the project.
 */

import { statfsSync } from "node:fs";
import type { ResourceUsage } from "@sandlot/contract";
import type { Timer, World } from "../../../world/world.ts";
import { type DiskKeeper, QUOTA_WORDS } from "../disk/keeper.ts";
import type { DiskWish } from "./project-quotas.ts";

/** One system call per sandbox with such a budget: a few microseconds. */
const LOOK_EVERY_MS = 1_000;
/** xfs returns `ENOSPC` for a full project. */
const SPACE_WORDS = /no space left on device|ENOSPC/i;

export interface QuotaGuardSpec extends DiskWish {
  /** The workspace's current `user-data` on the host, or `null`. */
  readonly place: () => string | null;
  readonly world: World;
  /** The workspace has become full. */
  readonly onFull: (says: string) => void;
}

export class QuotaGuard implements DiskKeeper {
  readonly budget = null;
  /** No process is stopped: the kernel refuses the write itself. */
  readonly stopCount = 0;
  readonly #spec: QuotaGuardSpec;
  #timer: Timer | null = null;
  #wasFull = false;

  constructor(spec: QuotaGuardSpec) {
    this.#spec = spec;
    this.#wasFull = this.isFull();
    this.#schedule();
  }

  get says(): string {
    const { diskBytes, filesMax } = this.#spec;
    const parts = [
      diskBytes === undefined ? "" : `${diskBytes} bytes`,
      filesMax === undefined ? "" : `${filesMax} files`,
    ];
    return `disk_limit_exceeded: the workspace may hold ${parts.filter(Boolean).join(" and ")}, and the kernel refuses more`;
  }

  get saysOfFile(): string {
    return this.says;
  }

  hasRefused(stderr: string): boolean {
    return QUOTA_WORDS.test(stderr) || (SPACE_WORDS.test(stderr) && this.isFull());
  }

  use(): void {}

  room(): number {
    const { bytes } = this.#left();
    return bytes;
  }

  usage(): Pick<ResourceUsage, "diskBytes" | "diskMaxBytes"> {
    const { diskBytes: max } = this.#spec;
    const room = this.room();
    if (max === undefined) return {};
    return Number.isFinite(room) ? { diskBytes: Math.max(0, max - room), diskMaxBytes: max } : { diskMaxBytes: max };
  }

  /** Whether no further block, or no further file, fits. */
  isFull(): boolean {
    const { bytes, files } = this.#left();
    return bytes <= 0 || files <= 0;
  }

  /** Looks now, and reports when the workspace has become full since the last look. */
  look(): void {
    const isFull = this.isFull();
    if (isFull && !this.#wasFull) this.#spec.onFull(this.says);
    this.#wasFull = isFull;
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  /** For a project's directory the kernel reports the project's free space as the disk's. */
  #left(): { readonly bytes: number; readonly files: number } {
    const { diskBytes, filesMax } = this.#spec;
    const place = this.#spec.place();
    const free = place === null ? null : freeAt(place);
    return {
      bytes: diskBytes === undefined || free === null ? Number.POSITIVE_INFINITY : free.bytes,
      files: filesMax === undefined || free === null ? Number.POSITIVE_INFINITY : free.files,
    };
  }

  #schedule(): void {
    const next = () => {
      this.look();
      this.#schedule();
    };
    this.#timer = this.#spec.world.timer(LOOK_EVERY_MS, next, { background: true });
  }
}

function freeAt(place: string): { readonly bytes: number; readonly files: number } | null {
  try {
    const { bfree, bsize, ffree } = statfsSync(place);
    return { bytes: bfree * bsize, files: ffree };
  } catch (error) {
    // It has just been moved.
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}
