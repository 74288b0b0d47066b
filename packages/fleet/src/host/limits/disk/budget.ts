/**
 * The disk budget of one workspace: its limit, its usage at the last measurement, and the API's writes since. Every
 * write through the API calls `admit` first; commands are watched (watcher.ts).
 *
 * A walk can miss files that move meanwhile from an unvisited directory to a visited one. Free disk space cannot be
 * deceived. Space that the disk lost and no walk found is **in doubt**; once that could take the workspace over its
 * budget, its processes are held for an exact walk.
 *
 * Invariants
 * - Writes that the API admits never take the workspace over its budget, or commands would be stopped for it.
 * - A workspace is not stopped for what others wrote to the same disk. Where processes cannot be held, space in doubt
 *   counts against a workspace in which files vanished during the walk.
 */

import { SandlotError } from "@sandlot/contract";
import type { Grow } from "../../../backend/write-budget.ts";
import { type DiskUsage, type MeasuredTree, measureTree, measureUnlinked } from "./measure.ts";
import type { Standstill } from "./standstill.ts";

export interface DiskBudgetSpec {
  /** The workspace's current path on the host; `null` while it has none. Binding a blank moves it. */
  readonly place: () => string | null;
  readonly maxBytes: number;
  readonly maxFiles: number;
  /** Host pids of the sandbox, for open files without a name; `null` where they are unknown. */
  readonly processes?: () => readonly number[] | null;
  /** Holds all possible writers; `null` where that is unsupported. */
  readonly hold?: () => Promise<Standstill | null>;
  /** Whether anything runs in the sandbox beside its daemon. `true` where that is unknown. */
  readonly isBusy?: () => boolean;
  /** Stops the possible writers. A rejection goes to `onProblem`. */
  readonly onExceeded: (usage: DiskUsage) => Promise<void> | void;
  readonly onProblem: (error: unknown) => void;
}

/** Files take whole blocks: a write may take this much more. */
const ROUNDING_BYTES = 4_096;
/** Of the admitted bytes, as many may be in pipes and buffers, where no walk sees them. */
const IN_FLIGHT_MAX_BYTES = 4 * 1024 * 1024;
/** How often a workspace is measured until it stops growing. Commands may write for ever. */
const SETTLING_ROUNDS_MAX = 8;

export class DiskBudget {
  readonly #spec: DiskBudgetSpec;
  readonly #onClose: () => void;
  readonly #pause: () => Promise<void>;
  #usage: DiskUsage = { bytes: 0, files: 0, complete: true };
  /** Admitted and not yet written. */
  readonly #underWay = { bytes: 0, files: 0 };
  /** Written since the last walk began. */
  #landed = { bytes: 0, files: 0 };
  /** Written before that walk; counted until it has ended. */
  #landedBefore = { bytes: 0, files: 0 };
  #stoppedAt: DiskUsage | null = null;
  /** Free space lost since the last walk. */
  #lost = { bytes: 0, files: 0 };
  readonly #doubt = { bytes: 0, files: 0 };
  #ran = false;
  #closed = false;
  #measuring: Promise<void> | null = null;

  /** `pause` takes longer than a daemon needs to write what it received. */
  constructor(spec: DiskBudgetSpec, onClose: () => void, pause: () => Promise<void>) {
    this.#spec = spec;
    this.#onClose = onClose;
    this.#pause = pause;
  }

  place(): string | null {
    return this.#spec.place();
  }

  /** As of the last measurement. */
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
   * Runs a write through the API that takes `bytes` and creates `files`, if they fit; otherwise `disk_limit_exceeded`.
   * If they seem not to fit, it measures before it refuses. A write that learns its size while streaming calls `grow`.
   */
  async admit<T>(path: string, bytes: number, files: number, write: (grow: Grow) => Promise<T>): Promise<T> {
    const pending = { bytes: bytes + ROUNDING_BYTES, files };
    await this.#reserve(path, pending.bytes, files);
    const land = (inFlightBytes: number) => {
      // On the disk now, but a running walk may have missed it.
      const landed = Math.max(0, pending.bytes - inFlightBytes);
      add(this.#landed, landed, pending.files);
      add(this.#underWay, -landed, -pending.files);
      pending.bytes -= landed;
      pending.files = 0;
    };
    const settle = async () => {
      await this.#settled();
      land(0);
    };
    const grow = async (more: number) => {
      // A writer that asks for more has written most of the rest. Without this the walk would count it twice.
      land(IN_FLIGHT_MAX_BYTES);
      await this.#reserve(path, more, 0, settle);
      pending.bytes += more;
    };
    try {
      const result = await write(grow);
      land(0);
      return result;
    } finally {
      add(this.#underWay, -pending.bytes, -pending.files);
    }
  }

  /** The disk has this much less free space than before the last walk, for whatever reason. */
  noteLoss(bytes: number, files: number): void {
    add(this.#lost, Math.max(0, bytes), Math.max(0, files));
  }

  /** A command ran in the sandbox. */
  noteCommand(): void {
    this.#ran = true;
  }

  /** Whether anything runs, or has run since the last walk. */
  get isBusy(): boolean {
    return this.#ran || (this.#spec.isBusy?.() ?? true);
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

  /** `settle` waits for what the same write has already sent. */
  async #reserve(path: string, bytes: number, files: number, settle?: () => Promise<void>): Promise<void> {
    if (!this.#fits(bytes, files)) {
      // A running walk may have missed later changes.
      await this.#measuring;
      await settle?.();
      await this.measure();
      if (!this.#fits(bytes, files)) throw new SandlotError("disk_limit_exceeded", { path });
    }
    // In the same turn as the check, or two writes would both take the same room.
    add(this.#underWay, bytes, files);
  }

  /** The writer sends nothing while it waits for a response, so data in flight arrives soon. */
  async #settled(): Promise<void> {
    for (let round = 0; round < SETTLING_ROUNDS_MAX; round += 1) {
      const before = this.#usage.bytes;
      await this.#pause();
      await this.measure();
      if (this.#usage.bytes === before) return;
    }
  }

  #fits(bytes: number, files: number): boolean {
    const { rest } = this;
    return !this.exceeded && bytes <= rest.bytes && files <= rest.files;
  }

  async #measure(): Promise<void> {
    const place = this.place();
    if (place === null || this.#closed) return;
    this.#ran = false;
    this.#landedBefore = this.#landed;
    // This walk may or may not see later writes; they count until the next one.
    this.#landed = { bytes: 0, files: 0 };
    try {
      this.#usage = await this.#undeceived(place, await this.#walk(place));
    } catch (error) {
      add(this.#landed, this.#landedBefore.bytes, this.#landedBefore.files);
      return this.#spec.onProblem(error);
    } finally {
      this.#landedBefore = { bytes: 0, files: 0 };
    }
    await this.#judge();
  }

  /** `held` are pids that no list names while they are held. */
  async #walk(place: string, held: readonly number[] = []): Promise<MeasuredTree> {
    const tree = await measureTree(place, this.#spec.maxFiles);
    const unlinked = await measureUnlinked(place, [...new Set([...(this.#spec.processes?.() ?? []), ...held])]);
    return { ...tree, bytes: tree.bytes + unlinked.bytes, complete: tree.complete && unlinked.complete };
  }

  /** The result of the walk, or of an exact one. */
  async #undeceived(place: string, found: MeasuredTree): Promise<DiskUsage> {
    const lost = this.#lost;
    this.#lost = { bytes: 0, files: 0 };
    for (const key of ["bytes", "files"] as const) {
      const grown = Math.max(0, found[key] - this.#usage[key]);
      this.#doubt[key] = Math.max(0, this.#doubt[key] + lost[key] - grown);
    }
    const doubt = { ...this.#doubt };
    const feared = (seen: DiskUsage) => ({ ...seen, bytes: seen.bytes + doubt.bytes, files: seen.files + doubt.files });
    if (this.#isOver(found) || !this.#isOver(feared(found))) return found;
    const held = (await this.#spec.hold?.()) ?? null;
    Object.assign(this.#doubt, { bytes: 0, files: 0 });
    if (held === null) return found.settled ? found : feared(found);
    let stood = false;
    const walked = await this.#walk(place, held.pids).finally(() => {
      stood = held.release();
    });
    return stood || walked.settled ? walked : feared(walked);
  }

  #isOver(usage: DiskUsage): boolean {
    return usage.bytes > this.#spec.maxBytes || usage.files > this.#spec.maxFiles || !usage.complete;
  }

  async #judge(): Promise<void> {
    const usage = this.#usage;
    const over = this.#isOver(usage);
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
