/**
 * One workspace's disk budget: what it may take, what it took when it was last measured, and what the API has let in
 * since. `admit` is asked before every write through the API; commands are watched (watcher.ts).
 */

import { SandlotError } from "@sandlot/contract";
import { type DiskUsage, measureTree, measureUnlinked } from "./measure.ts";

export interface DiskBudgetSpec {
  /** Where the workspace is at this moment, on the host; `null` while it is nowhere. Binding a blank moves it. */
  readonly place: () => string | null;
  readonly maxBytes: number;
  readonly maxFiles: number;
  /** Host pids of the sandbox, for files that they keep open without a name; `null` where nobody knows. */
  readonly processes?: () => readonly number[] | null;
  /** Stops whoever may be writing. A rejection is passed on to `onProblem`. */
  readonly onExceeded: (usage: DiskUsage) => Promise<void> | void;
  readonly onProblem: (error: unknown) => void;
}

/** Lets a write take more than it began with. */
export type Grow = (bytes: number) => Promise<void>;

export class DiskBudget {
  readonly #spec: DiskBudgetSpec;
  readonly #onClose: () => void;
  #usage: DiskUsage = { bytes: 0, files: 0, complete: true };
  /** Let in and not yet written. */
  readonly #underWay = { bytes: 0, files: 0 };
  /** Written since the last walk began. */
  #landed = { bytes: 0, files: 0 };
  /** Written before that walk; counted until it has ended. */
  #landedBefore = { bytes: 0, files: 0 };
  #stoppedAt: DiskUsage | null = null;
  #closed = false;
  #measuring: Promise<void> | null = null;

  constructor(spec: DiskBudgetSpec, onClose: () => void) {
    this.#spec = spec;
    this.#onClose = onClose;
  }

  place(): string | null {
    return this.#spec.place();
  }

  /** As last measured. */
  get usage(): DiskUsage {
    return this.#usage;
  }

  get exceeded(): boolean {
    return this.#stoppedAt !== null;
  }

  get rest(): { readonly bytes: number; readonly files: number } {
    const parts = [this.#usage, this.#underWay, this.#landed, this.#landedBefore];
    const left = (max: number, key: "bytes" | "files") =>
      Math.max(
        0,
        parts.reduce((rest, part) => rest - part[key], max),
      );
    return { bytes: left(this.#spec.maxBytes, "bytes"), files: left(this.#spec.maxFiles, "files") };
  }

  /**
   * Runs a write through the API that takes `bytes` and makes `files`, if they fit; otherwise `disk_limit_exceeded`. What
   * does not seem to fit is measured before it is refused. A write that learns its size on the way grows.
   */
  async admit<T>(path: string, bytes: number, files: number, write: (grow: Grow) => Promise<T>): Promise<T> {
    await this.#reserve(path, bytes, files);
    let pending = { bytes, files };
    const land = () => {
      // On the disk now, but a walk that is under way may have passed by.
      add(this.#landed, pending.bytes, pending.files);
      add(this.#underWay, -pending.bytes, -pending.files);
      pending = { bytes: 0, files: 0 };
    };
    const grow = async (more: number) => {
      // Whoever asks for more has written the rest, or the walk would count it once more where it lies.
      land();
      await this.#reserve(path, more, 0);
      pending = { bytes: more, files: 0 };
    };
    try {
      const result = await write(grow);
      land();
      return result;
    } finally {
      add(this.#underWay, -pending.bytes, -pending.files);
    }
  }

  measure(): Promise<void> {
    this.#measuring ??= this.#measure().finally(() => {
      this.#measuring = null;
    });
    return this.#measuring;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#onClose();
  }

  async #reserve(path: string, bytes: number, files: number): Promise<void> {
    if (!this.#fits(bytes, files)) {
      // A walk that is under way may have passed by what has changed since.
      await this.#measuring;
      await this.measure();
      if (!this.#fits(bytes, files)) throw new SandlotError("disk_limit_exceeded", { path });
    }
    // In the same turn as the check, or two writes would both find room for one.
    add(this.#underWay, bytes, files);
  }

  #fits(bytes: number, files: number): boolean {
    const { rest } = this;
    return !this.exceeded && bytes <= rest.bytes && files <= rest.files;
  }

  async #measure(): Promise<void> {
    const place = this.place();
    if (place === null || this.#closed) return;
    this.#landedBefore = this.#landed;
    // What lands from here on may or may not be seen by this walk; it counts until the next one.
    this.#landed = { bytes: 0, files: 0 };
    try {
      const tree = await measureTree(place, this.#spec.maxFiles);
      const unlinked = await measureUnlinked(place, this.#spec.processes?.() ?? []);
      this.#usage = { ...tree, bytes: tree.bytes + unlinked };
    } catch (error) {
      add(this.#landed, this.#landedBefore.bytes, this.#landedBefore.files);
      return this.#spec.onProblem(error);
    } finally {
      this.#landedBefore = { bytes: 0, files: 0 };
    }
    await this.#judge();
  }

  async #judge(): Promise<void> {
    const usage = this.#usage;
    const over = usage.bytes > this.#spec.maxBytes || usage.files > this.#spec.maxFiles || !usage.complete;
    const before = this.#stoppedAt;
    this.#stoppedAt = over ? usage : null;
    const grew = before === null || usage.bytes > before.bytes || usage.files > before.files;
    if (!over || !grew || this.#closed) return;
    try {
      await this.#spec.onExceeded(usage);
    } catch (error) {
      this.#spec.onProblem(error);
    }
  }
}

function add(sum: { bytes: number; files: number }, bytes: number, files: number): void {
  sum.bytes += bytes;
  sum.files += files;
}
