/**
 * Workspaces that the kernel holds to their budgets: each is a project of its file system, with limits.
 *
 *   claim written ─▶ tree belongs to the project ─▶ limits set ─▶ claim complete
 *
 * A tree carries its project with it. Its directory says that what is made in it belongs there too, and the kernel refuses
 * (`EXDEV`) to move anything of another project into such a directory; the directories above, in homes, slots and the
 * trash, say nothing of the kind, so that workspaces are moved between them by one rename as everywhere.
 * Inside a sandbox nobody can leave a project: the kernel changes it for the machine's own user namespace only.
 *
 * Invariants
 * - A tree is given to a project only while nothing runs that could change it: `chattr` goes by names.
 * - Whatever fails on the way is unmade here and told, and the workspace is watched as where there are no quotas.
 * - A number is given up when the kernel shows that nothing belongs to it any more.
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
  /** Hears why workspaces are watched in spite of what the mount table says. */
  readonly onProblem: (error: unknown) => void;
  /** What the mount table says, for tests. */
  readonly look?: (root: string) => QuotaSight;
}

/** Numbers of a trial are claimed for no thread. */
const NO_THREAD = "0".repeat(32) as ThreadKey;
/** A claim that is older than this and has no files was left by a process that was killed. */
const COMING_MAX_MS = 60_000;
/** xfs lets go of removed files a little later. */
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

  /** Whether quotas are in force, as far as can be told without trying. */
  get isConceivable(): boolean {
    this.#sight ??= (this.#options.look ?? lookForQuotas)(this.#options.root);
    return this.#sight.possible;
  }

  /** Whether quotas are in force, tried out once. */
  sight(): Promise<QuotaSight> {
    if (!this.isConceivable && this.#sight !== null) return Promise.resolve(this.#sight);
    this.#trying ??= this.#try();
    return this.#trying;
  }

  /** Whether the kernel holds this workspace. What was claimed was tried out, by whoever claimed it. */
  holds(thread: ThreadKey, path: string): boolean {
    if (!this.isConceivable) return false;
    const inode = lstatSync(path, { bigint: true, throwIfNoEntry: false })?.ino;
    return this.#claims.of(thread).some((claim) => claim.isComplete && claim.inode === inode);
  }

  /** Has the kernel hold a workspace to this from now on. Only while nothing runs that could change the tree. */
  async hold(thread: ThreadKey, path: string, wish: DiskWish): Promise<void> {
    if (!this.isConceivable) return;
    const { ino: inode, blocks } = lstatSync(path, { bigint: true });
    const before = this.#claims.of(thread).find((claim) => claim.inode === inode);
    const limits = limitsFor(wish, Number(blocks));
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

  /** The thread's workspaces were removed: gives up their numbers. What is still on the disk waits for a sweep. */
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

  /** Gives up what killed processes have left, and what belonged to workspaces that are gone. */
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

  /** What cannot be undone stays claimed, without limits, until the tree is gone. */
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

  /** Whether all of them could be given up. */
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

/** The workspace's own directory is not part of its budget, but of the project. */
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
