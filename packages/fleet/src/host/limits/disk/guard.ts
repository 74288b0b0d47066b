/**
 * Enforces the disk budget of a sandbox: stops writers that exceed it.
 *
 * It tells commands from the daemon by the out-of-memory score that the daemon gave them. If the workspace keeps
 * growing with no command in sight, a command has changed its score: then the guard kills every process that the
 * sandbox does not need.
 */

import { readFileSync } from "node:fs";
import type { ResourceUsage, Sandbox } from "@sandlot/contract";
import type { World } from "../../../world/world.ts";
import type { LimitGroup } from "../limits.ts";
import { COMMAND_OOM_SCORE_ADJUSTMENT } from "../start-prefix.ts";
import type { DiskBudget } from "./budget.ts";
import { holdStill, withoutDaemon } from "./hold.ts";
import { type DiskKeeper, QUOTA_WORDS } from "./keeper.ts";
import type { DiskUsage } from "./measure.ts";
import type { DiskWatcher } from "./watcher.ts";

export interface DiskGuardSpec {
  readonly world: World;
  readonly group: LimitGroup;
  /** The workspace's current `user-data` on the host, or `null`. */
  readonly place: () => string | null;
  /** Absent: no limit. */
  readonly diskBytes?: number | undefined;
  readonly filesMax?: number | undefined;
  /** Host pids that the sandbox needs: the engine's own, and the init. */
  readonly spare: readonly number[];
  readonly onExceeded?: (usage: DiskUsage) => void;
  readonly onProblem: (error: unknown) => void;
}

/** What a short command may write between two looks. More means that a process hides. */
const UNSEEN_MAX_BYTES = 32 * 1024 * 1024;

export class DiskGuard implements DiskKeeper {
  readonly budget: DiskBudget;
  readonly #spec: DiskGuardSpec;
  /** Ends commands where there is no group to list them. */
  #sandbox: Sandbox | null = null;
  #stopCount = 0;
  #stoppedAtBytes = 0;

  constructor(watcher: DiskWatcher, spec: DiskGuardSpec) {
    this.#spec = spec;
    this.budget = watcher.watch({
      place: spec.place,
      maxBytes: spec.diskBytes ?? Number.POSITIVE_INFINITY,
      maxFiles: spec.filesMax ?? Number.POSITIVE_INFINITY,
      processes: () => spec.group.processes(),
      isBusy: () => (this.#others()?.length ?? 1) > 0,
      hold: () => holdStill(() => this.#others(), spec.world),
      onExceeded: (usage) => this.#stop(usage),
      onProblem: spec.onProblem,
    });
  }

  room(): number {
    return this.budget.rest.bytes;
  }

  usage(): Pick<ResourceUsage, "diskBytes" | "diskMaxBytes"> {
    const { diskBytes: max } = this.#spec;
    return max === undefined
      ? { diskBytes: this.budget.usage.bytes }
      : { diskBytes: max - this.budget.rest.bytes, diskMaxBytes: max };
  }

  /** Increases each time writers were stopped. */
  get stopCount(): number {
    return this.#stopCount;
  }

  get says(): string {
    const { diskBytes, filesMax } = this.#spec;
    const parts = [
      diskBytes === undefined ? "" : `${diskBytes} bytes`,
      filesMax === undefined ? "" : `${filesMax} files`,
    ];
    return `disk_limit_exceeded: the workspace may hold ${parts.filter(Boolean).join(" and ")}, and its commands were stopped`;
  }

  /** For a write that the kernel refused; `null` where the kernel has no budget. */
  get saysOfFile(): string | null {
    const { diskBytes } = this.#spec;
    if (diskBytes === undefined) return null;
    return `disk_limit_exceeded: the workspace may hold ${diskBytes} bytes, and no file may grow beyond that`;
  }

  /** A quota of the file system that Sandlot did not set. */
  hasRefused(stderr: string): boolean {
    return QUOTA_WORDS.test(stderr);
  }

  use(sandbox: Sandbox): void {
    this.#sandbox = sandbox;
  }

  close(): void {
    this.budget.close();
  }

  async #stop(usage: DiskUsage): Promise<void> {
    this.#spec.onExceeded?.(usage);
    const isFirst = this.#stopCount === 0;
    const unseen = !isFirst && usage.bytes - this.#stoppedAtBytes > UNSEEN_MAX_BYTES;
    // Before the result of a stopped command can arrive.
    this.#stopCount += 1;
    if ((await this.#stopCommands(unseen)) || isFirst) this.#stoppedAtBytes = usage.bytes;
  }

  /** Every process except those that run the sandbox; `null` where they are unknown. */
  #others(): readonly number[] | null {
    const pids = this.#spec.group.processes();
    return pids === null ? null : withoutDaemon(pids, this.#spec.spare);
  }

  /** Whether there was a process to stop. */
  async #stopCommands(unseen: boolean): Promise<boolean> {
    const { group, spare } = this.#spec;
    const pids = group.processes();
    if (pids === null) return this.#askDaemon();
    // The daemon also has a command's score while it starts one.
    const commands = withoutDaemon(pids, spare).filter(isCommand);
    const others = pids.filter((pid) => !commands.includes(pid));
    return group.killExcept(unseen && others.length === pids.length ? spare : others).length > 0;
  }

  async #askDaemon(): Promise<boolean> {
    const sandbox = this.#sandbox;
    if (sandbox === null) return false;
    const known = await sandbox.execs.list();
    const ended = await Promise.all(known.map(({ execId }) => sandbox.execs.kill(execId)));
    return ended.some(Boolean);
  }
}

/** A missing process needs no kill. */
function isCommand(pid: number): boolean {
  try {
    return Number(readFileSync(`/proc/${pid}/oom_score_adj`, "latin1")) >= COMMAND_OOM_SCORE_ADJUSTMENT;
  } catch {
    return true;
  }
}
