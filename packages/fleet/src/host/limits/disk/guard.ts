/**
 * Stands between a sandbox and its disk budget: whoever writes past it is stopped.
 *
 * Commands are told from the daemon by the out-of-memory score that it gave them. One that gave itself another is found
 * out when the workspace goes on growing with no command in sight; then everything goes that the sandbox can be without.
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
  /** The workspace's `user-data` on the host at this moment, or `null`. */
  readonly place: () => string | null;
  /** No key: not limited. */
  readonly diskBytes?: number | undefined;
  readonly filesMax?: number | undefined;
  /** Host pids without which there is no sandbox: the engine's own, and the init. */
  readonly spare: readonly number[];
  readonly onExceeded?: (usage: DiskUsage) => void;
  readonly onProblem: (error: unknown) => void;
}

/** What a command may have written that came and went between two looks. More takes one that hides. */
const UNSEEN_MAX_BYTES = 32 * 1024 * 1024;

export class DiskGuard implements DiskKeeper {
  readonly budget: DiskBudget;
  readonly #spec: DiskGuardSpec;
  /** Through whom commands are ended where there is no group to look into. */
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

  /** Grows each time that writers were stopped. */
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

  /** For a write that the kernel refused; `null` where it holds no budget. */
  get saysOfFile(): string | null {
    const { diskBytes } = this.#spec;
    if (diskBytes === undefined) return null;
    return `disk_limit_exceeded: the workspace may hold ${diskBytes} bytes, and no file may grow beyond that`;
  }

  /** A quota that somebody else has set on the file system. */
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

  /** Everything but what the sandbox is run by; `null` where nobody knows. */
  #others(): readonly number[] | null {
    const pids = this.#spec.group.processes();
    return pids === null ? null : withoutDaemon(pids, this.#spec.spare);
  }

  /** Whether there was anybody to stop. */
  async #stopCommands(unseen: boolean): Promise<boolean> {
    const { group, spare } = this.#spec;
    const pids = group.processes();
    if (pids === null) return this.#askDaemon();
    // The daemon has a command's score, too, while it starts one.
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

/** A process that is gone needs no killing. */
function isCommand(pid: number): boolean {
  try {
    return Number(readFileSync(`/proc/${pid}/oom_score_adj`, "latin1")) >= COMMAND_OOM_SCORE_ADJUSTMENT;
  } catch {
    return true;
  }
}
