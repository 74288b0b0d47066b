/**
 * The disk limit of workspaces on a shared claim, which has no quotas of its own: it is measured, not enforced.
 *
 *   over the limit        `limit-hit`, once until it is below the limit again
 *   over twice the limit  the sandbox is ended, with the same event
 *   little room left      no new sandboxes: below 5 % free the volume belongs to those that run
 *
 * Invariants
 * - One workspace is measured at a time, so a big one delays others and never the gateway.
 * - A workspace that could not be measured, or only in part, is judged by what was seen: more may be there, never less.
 */

import { type SandboxId, SandlotError } from "@sandlot/contract";
import type { HostWorkspaces, WorkspaceKey } from "../../../backend/host-workspaces.ts";
import type { Timer, World } from "../../../world/world.ts";

/** A running sandbox whose blueprint limits its workspace. */
export interface WatchedSandbox extends WorkspaceKey {
  readonly sandboxId: SandboxId;
  readonly diskBytes: number;
}

export interface DiskWatchOptions {
  readonly world: World;
  readonly files: Pick<HostWorkspaces, "measure">;
  /** The volume's own account of its room. */
  readonly room: () => Promise<{ readonly freeBytes: number; readonly totalBytes: number }>;
  readonly running: () => Promise<readonly WatchedSandbox[]>;
  readonly onHit: (sandboxId: SandboxId, because: string) => void;
  /** Ends a sandbox that is far over its limit. */
  readonly end: (sandboxId: SandboxId, because: string) => Promise<void>;
  readonly onProblem: (problem: string) => void;
  readonly intervalMs?: number;
}

const INTERVAL_MS = 30_000;
/** The room that new sandboxes leave to those that run. */
const FREE_SHARE = 0.05;
const END_FACTOR = 2;
/** A walk counts so many files; a workspace with more is judged by these. */
const FILES_MAX = 1_000_000;
const MIB = 1024 * 1024;

export class DiskWatch {
  readonly #options: DiskWatchOptions;
  readonly #over = new Set<SandboxId>();
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(options: DiskWatchOptions) {
    this.#options = options;
  }

  start(): void {
    const { world, intervalMs = INTERVAL_MS, onProblem } = this.#options;
    const round = async () => {
      await this.look().catch((error: unknown) => onProblem(`workspaces could not be measured: ${error}`));
      if (!this.#isClosed) this.#timer = world.timer(intervalMs, round, { background: true });
    };
    this.#timer = world.timer(intervalMs, round, { background: true });
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  /** Measures every running sandbox once. */
  async look(): Promise<void> {
    const running = await this.#options.running();
    const present = new Set(running.map(({ sandboxId }) => sandboxId));
    for (const sandboxId of this.#over) if (!present.has(sandboxId)) this.#over.delete(sandboxId);
    for (const one of running) {
      if (this.#isClosed) return;
      await this.#judge(one);
    }
  }

  /** Refuses a new sandbox when the volume is nearly full. */
  async checkRoom(): Promise<void> {
    const { freeBytes, totalBytes } = await this.#options.room();
    if (freeBytes >= totalBytes * FREE_SHARE) return;
    const percent = ((freeBytes / totalBytes) * 100).toFixed(1);
    const problem = `only ${percent} % of the workspaces volume is free: enlarge it, or delete threads`;
    throw new SandlotError("engine_unavailable", { engine: "workspaces", problem, tried: [], retryAfterMs: 30_000 });
  }

  async #judge({ user, thread, sandboxId, diskBytes }: WatchedSandbox): Promise<void> {
    const usage = (await this.#options.files.measure?.({ user, thread }, FILES_MAX)) ?? null;
    if (usage === null || usage.bytes <= diskBytes) {
      this.#over.delete(sandboxId);
      return;
    }
    const because = `the workspace takes ${inMib(usage.bytes)} MiB of the ${inMib(diskBytes)} MiB that it may`;
    if (!this.#over.has(sandboxId)) this.#options.onHit(sandboxId, because);
    this.#over.add(sandboxId);
    if (usage.bytes > diskBytes * END_FACTOR) await this.#options.end(sandboxId, because);
  }
}

function inMib(bytes: number): string {
  return (bytes / MIB).toFixed(bytes < 10 * MIB ? 1 : 0);
}
