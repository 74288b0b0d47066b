/**
 * Workspaces whose budgets the kernel enforces: each is a project of its file system, with limits.
 *
 *   claim written ─▶ tree belongs to the project ─▶ limits set ─▶ claim complete
 *
 * A tree carries its project with it. New entries in its directory inherit the project, and the kernel refuses
 * (`EXDEV`) to move an entry of another project into such a directory. The parent directories (homes, slots, trash)
 * have no such rule, so one rename still moves a workspace between them. A process inside a sandbox cannot leave a
 * project: the kernel changes it only for the machine's initial user namespace.
 *
 * Invariants
 * - A tree is assigned to a project only while nothing that could change it runs: `chattr` works by names.
 * - A failed step is undone here and reported, and the workspace is watched as without quotas.
 * - A number is released when the kernel shows that nothing belongs to it any more.
 */

import { lstatSync } from "node:fs";
import { SandlotError, type ThreadKey } from "@sandlot/contract";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { type Claim, Claims } from "./claims.ts";
import { giveProject, type ProjectLimits, projectUses, setLimits, takeProject, UNLIMITED } from "./programs.ts";
import { chooseProjectId, givenProjectIds } from "./project-ids.ts";
import { lookThrough, type Tree } from "./takable.ts";
import { lookForQuotas, type QuotaSight, tryQuotas } from "./trial.ts";

export interface DiskWish {
  readonly diskBytes?: number | undefined;
  readonly filesMax?: number | undefined;
}

export interface ProjectQuotasOptions {
  /** The fleet's own directory. */
  readonly root: string;
  readonly world: World;
  /** Receives why workspaces are watched although the mount table shows quotas. */
  readonly onProblem: (error: unknown) => void;
  /** Reads the mount table; replaceable for tests. */
  readonly look?: (root: string) => QuotaSight;
}

/** A trial's number is claimed under no thread. */
const NO_THREAD = "0".repeat(32) as ThreadKey;
/** An older claim without files was left by a killed process. */
const COMING_MAX_MS = 60_000;
/** xfs frees removed files a little later. */
const RELEASE_TIMEOUT_MS = 2_000;
const RELEASE_RETRY_MS = 50;
const KIB = 1_024;

export class ProjectQuotas {
  readonly #options: ProjectQuotasOptions;
  readonly #claims: Claims;
  #sight: QuotaSight | null = null;
  #trying: Promise<QuotaSight> | null = null;

  constructor(options: ProjectQuotasOptions) {
    this.#options = options;
    this.#claims = new Claims(options.root);
  }

  /** Whether quotas may be in force, without trying. */
  get isConceivable(): boolean {
    this.#sight ??= (this.#options.look ?? lookForQuotas)(this.#options.root);
    return this.#sight.possible;
  }

  /** Whether quotas are in force, tried once. */
  sight(): Promise<QuotaSight> {
    if (!this.isConceivable && this.#sight !== null) return Promise.resolve(this.#sight);
    this.#trying ??= this.#try();
    return this.#trying;
  }

  /** Whether the kernel limits this workspace. The process that made the claim tried it out. */
  holds(thread: ThreadKey, path: string): boolean {
    if (!this.isConceivable) return false;
    const inode = lstatSync(path, { bigint: true, throwIfNoEntry: false })?.ino;
    return this.#claims.of(thread).some((claim) => claim.isComplete && claim.inode === inode);
  }

  /** Lets the kernel limit a workspace from now on. Only while nothing that could change the tree runs. */
  async hold(thread: ThreadKey, path: string, requested: DiskWish): Promise<void> {
    if (!this.isConceivable) return;
    const { ino: inode, blocks } = lstatSync(path, { bigint: true });
    const before = this.#claims.of(thread).find((claim) => claim.inode === inode);
    const limits = limitsFor(requested, Number(blocks));
    const isWanted = limits.kib > 0 || limits.files > 0;
    if (before === undefined ? !isWanted : before.isComplete && isSame(before.limits, limits)) return;
    const sight = await this.sight();
    if (!sight.possible) return;
    try {
      if (before?.isComplete === true) await this.#change(before, limits, sight.mountPoint);
      else await this.#take({ thread, inode, limits }, path, before, sight.mountPoint);
    } catch (error) {
      this.#options.onProblem(error);
    }
  }

  /** The thread's workspaces were removed: releases their numbers. Those still on the disk wait for a sweep. */
  async release(thread: ThreadKey): Promise<void> {
    const { world, onProblem } = this.#options;
    const until = world.monotonicMs() + RELEASE_TIMEOUT_MS;
    try {
      for (let claims = this.#claims.of(thread); claims.length > 0; claims = this.#claims.of(thread)) {
        if ((await this.#giveUp(claims)) || world.monotonicMs() > until) return;
        await sleep(world, RELEASE_RETRY_MS);
      }
    } catch (error) {
      onProblem(error);
    }
  }

  /** Releases what killed processes left, and numbers of workspaces that are gone. */
  async sweep(): Promise<void> {
    if (!this.isConceivable) return;
    const before = this.#options.world.wallMs() - COMING_MAX_MS;
    const claims = this.#claims.all().filter((claim) => (this.#claims.writtenAtMs(claim) ?? before) < before);
    if (claims.length > 0) await this.#giveUp(claims);
  }

  async #try(): Promise<QuotaSight> {
    const seen = this.#sight;
    if (seen === null || !seen.possible) throw new SandlotError("internal", { problem: "quotas were not looked for" });
    const { root, world } = this.#options;
    const { mountPoint } = seen;
    try {
      await tryQuotas(root, mountPoint, world, (directory, use) => this.#lend(directory, mountPoint, use));
      return seen;
    } catch (error) {
      this.#sight = { possible: false, reason: (error as Error).message };
      this.#options.onProblem(new Error(`project quotas cannot be used: ${this.#sight.reason}`, { cause: error }));
      return this.#sight;
    }
  }

  async #lend(directory: string, mountPoint: string, use: (id: number) => Promise<void>): Promise<void> {
    const { ino: inode } = lstatSync(directory, { bigint: true });
    const id = await this.#choose(inode, mountPoint);
    const claim = { thread: NO_THREAD, id, inode, limits: UNLIMITED, isComplete: false };
    this.#claims.write(claim);
    try {
      await use(id);
    } finally {
      await setLimits(mountPoint, id, UNLIMITED);
      this.#claims.drop(claim);
    }
  }

  async #change(before: Claim, limits: ProjectLimits, mountPoint: string): Promise<void> {
    await setLimits(mountPoint, before.id, limits);
    this.#claims.change(before, { ...before, limits });
  }

  async #take(
    wanted: Pick<Claim, "thread" | "inode" | "limits">,
    path: string,
    before: Claim | undefined,
    mountPoint: string,
  ): Promise<void> {
    const tree = await lookThrough(path);
    const coming = before ?? {
      ...wanted,
      id: await this.#choose(wanted.inode, mountPoint),
      isComplete: false,
    };
    this.#claims.write(coming);
    try {
      await giveProject(tree, coming.id);
      await setLimits(mountPoint, coming.id, wanted.limits);
      this.#claims.change(coming, { ...wanted, id: coming.id, isComplete: true });
    } catch (error) {
      await this.#untake(coming, tree, mountPoint);
      throw error;
    }
  }

  /** If undoing fails, the claim stays, without limits, until the tree is gone. */
  async #untake(claim: Claim, tree: Tree, mountPoint: string): Promise<void> {
    const undone = await Promise.allSettled([setLimits(mountPoint, claim.id, UNLIMITED), takeProject(tree)]);
    if (undone.every(({ status }) => status === "fulfilled")) this.#claims.drop(claim);
  }

  async #choose(inode: bigint, mountPoint: string): Promise<number> {
    const used = (await projectUses(mountPoint)).filter(({ usedFiles, isLimited }) => usedFiles > 0 || isLimited);
    const claimed = this.#claims.all();
    const taken = new Set([...used, ...claimed].map(({ id }) => id));
    const id = chooseProjectId(inode, new Set([...taken, ...givenProjectIds()]));
    if (id === null) throw new Error("there is no free project number");
    return id;
  }

  /** Whether all of them were released. */
  async #giveUp(claims: readonly Claim[]): Promise<boolean> {
    const sight = await this.sight();
    if (!sight.possible) return true;
    const uses = new Map((await projectUses(sight.mountPoint)).map((use) => [use.id, use]));
    const idle = claims.filter(({ id }) => (uses.get(id)?.usedFiles ?? 0) === 0);
    for (const claim of idle) {
      if (uses.get(claim.id)?.isLimited === true) await setLimits(sight.mountPoint, claim.id, UNLIMITED);
      this.#claims.drop(claim);
    }
    return idle.length === claims.length;
  }
}

/** The workspace's own directory counts for the project, but not for its budget. */
function limitsFor({ diskBytes, filesMax }: DiskWish, ownBlocks: number): ProjectLimits {
  const ownKib = Math.ceil(ownBlocks / 2);
  return {
    kib: diskBytes === undefined ? 0 : Math.max(1, Math.floor(diskBytes / KIB)) + ownKib,
    files: filesMax === undefined ? 0 : filesMax + 1,
  };
}

function isSame(one: ProjectLimits, other: ProjectLimits): boolean {
  return one.kib === other.kib && one.files === other.files;
}
