/**
 * Environments on disk.
 *
 *   environments/<name>@<hash>/tree    what sandboxes see at /opt/env
 *                             /log     what the setup printed
 *                             /ok      facts; made in the draft, so it appears with the rename that commits a build
 *                             /failed  the reason, in place of `ok` and `tree`
 *   environments/.sandlot-draft-*      a build in progress, or of a dead process
 *   environments/trash/                what is being removed
 *   environments/locks/<name>@<hash>   an SQLite file, locked by the process that builds or removes
 *   environments/uses/<sandboxId>-<generation>   the environment that it has mounted, its engine and its home
 *
 * Invariants
 * - A tree is changed only as a draft. One that has `ok` is complete.
 * - A tree is removed only after its `ok` was taken away and no use was found. A user writes its use first, and looks
 *   for `ok` afterwards: so either the remover sees the use, or the user sees that the tree is going.
 */

import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { Trash } from "../host/workspaces/trash.ts";
import { draftName, isAbandoned, isDraft } from "../world/drafts.ts";
import { makeDirectories } from "../world/make-directories.ts";
import { openDatabase } from "../world/sqlite-driver.ts";
import type { World } from "../world/world.ts";

export interface EnvironmentFacts {
  readonly sizeBytes: number;
  readonly files: number;
  readonly builtAt: number;
  readonly buildMs: number;
  /** Paths of Python packages, below the tree. */
  readonly pythonPaths: readonly string[];
}

export interface Failure {
  readonly problem: string;
  readonly at: number;
}

/** What a sandbox was made with. It never changes, also where a blank is bound to a thread. */
export interface Use {
  readonly id: string;
  /** The engine that has the sandbox. */
  readonly engine: string;
  /** The path of its home. */
  readonly home: string;
}

export interface NotedUse extends Use {
  /** `<sandboxId>-<generation>`, as it was made. */
  readonly sandbox: string;
  readonly at: number;
}

export interface EnvironmentEntry {
  readonly id: string;
  readonly facts: EnvironmentFacts | null;
  readonly failure: Failure | null;
  readonly usedAt: number;
  /** Sandboxes that have it mounted, as far as is known. */
  readonly uses: readonly string[];
}

/** In a draft: the home of the fleet that builds. */
export const BUILD = "build";
const TRASH = "trash";
/** The owner of drafts in the trash. */
const DRAFTS = "drafts";

export class EnvironmentStore {
  readonly root: string;
  readonly #world: World;
  readonly #trash: Trash;

  constructor(home: string, world: World) {
    this.root = join(home, "environments");
    this.#world = world;
    this.#trash = new Trash(join(this.root, TRASH), world);
  }

  make(): void {
    makeDirectories(this.root, 0o700);
    for (const name of ["locks", "uses", TRASH]) mkdirSync(join(this.root, name), { recursive: true, mode: 0o700 });
  }

  tree(id: string): string {
    return join(this.root, id, "tree");
  }

  facts(id: string): EnvironmentFacts | null {
    return readJson<EnvironmentFacts>(join(this.root, id, "ok"));
  }

  failure(id: string): Failure | null {
    return readJson<Failure>(join(this.root, id, "failed"));
  }

  log(id: string): string | null {
    try {
      return readFileSync(join(this.root, id, "log"), "utf8");
    } catch {
      return null;
    }
  }

  /** Also says that it is used now, which keeps it from being pruned by age. */
  addUse(sandbox: string, use: Use): void {
    writeFileSync(join(this.root, "uses", sandbox), JSON.stringify(use), { mode: 0o600 });
    const nowSeconds = this.#world.wallMs() / 1_000;
    if (existsSync(join(this.root, use.id))) utimesSync(join(this.root, use.id), nowSeconds, nowSeconds);
  }

  dropUse(sandbox: string): void {
    rmSync(join(this.root, "uses", sandbox), { force: true });
  }

  /** What a sandbox was made with, whatever its generation is now. */
  usedBy(sandboxId: string): NotedUse | null {
    const sandbox = namesIn(join(this.root, "uses")).findLast((name) => name.startsWith(`${sandboxId}-`));
    return sandbox === undefined ? null : this.#use(sandbox);
  }

  uses(): readonly NotedUse[] {
    return namesIn(join(this.root, "uses")).flatMap((sandbox) => this.#use(sandbox) ?? []);
  }

  /** `null`: dropped meanwhile. */
  #use(sandbox: string): NotedUse | null {
    const path = join(this.root, "uses", sandbox);
    const use = readJson<Use>(path);
    const at = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
    return use === null || at === undefined ? null : { ...use, sandbox, at };
  }

  entries(): readonly EnvironmentEntry[] {
    const uses = this.uses();
    return namesIn(this.root)
      .filter((name) => name.includes("@"))
      .map((id) => ({
        id,
        facts: this.facts(id),
        failure: this.failure(id),
        usedAt: statSync(join(this.root, id), { throwIfNoEntry: false })?.mtimeMs ?? 0,
        uses: uses.filter((use) => use.id === id).map(({ sandbox }) => sandbox),
      }));
  }

  draft(): string {
    const path = join(this.root, draftName(this.#world));
    mkdirSync(join(path, "tree"), { recursive: true, mode: 0o755 });
    return path;
  }

  /** Puts a finished draft in place. The caller holds the lock. */
  async commit(id: string, draft: string, facts: EnvironmentFacts): Promise<void> {
    writeFileSync(join(draft, "ok"), JSON.stringify(facts));
    await this.#put(id, draft, [BUILD]);
  }

  async fail(id: string, draft: string, failure: Failure): Promise<void> {
    writeFileSync(join(draft, "failed"), JSON.stringify(failure));
    await this.#put(id, draft, [BUILD, "tree"]);
  }

  async discard(draft: string): Promise<void> {
    this.#trash.throwAway(draft, DRAFTS);
    await this.#emptyOrLeave(DRAFTS);
  }

  async #put(id: string, draft: string, without: readonly string[]): Promise<void> {
    for (const name of without) this.#trash.throwAway(join(draft, name), hashOf(id));
    this.#replace(id, draft);
    await this.#emptyOrLeave(hashOf(id));
  }

  /** The next prune tries again what could not be removed, and says why. */
  async #emptyOrLeave(owner: string): Promise<void> {
    await this.#trash.empty(owner).catch(() => {});
  }

  /**
   * What was there has no `ok`: it is the log of an earlier attempt, or a tree that is going. No sandbox has it.
   */
  #replace(id: string, draft: string): void {
    const path = join(this.root, id);
    this.#trash.throwAway(path, hashOf(id));
    renameSync(draft, path);
  }

  /** `false` where it is used, and nothing has changed. The caller holds the lock. */
  async remove(id: string): Promise<boolean> {
    const [path, ok] = [join(this.root, id), join(this.root, id, "ok")];
    if (!existsSync(path)) return true;
    const going = `${ok}.going`;
    if (existsSync(ok)) renameSync(ok, going);
    if (this.uses().some((use) => use.id === id)) {
      if (existsSync(going)) renameSync(going, ok);
      return false;
    }
    this.#trash.throwAway(path, hashOf(id));
    await this.#trash.empty(hashOf(id));
    return true;
  }

  /** Undoes the removal that a dead process has begun: sandboxes may have the tree. The caller holds the lock. */
  undoRemoval(id: string): void {
    const ok = join(this.root, id, "ok");
    if (existsSync(`${ok}.going`)) renameSync(`${ok}.going`, ok);
  }

  /** Drafts of processes that have ended, and what they did not remove to the end. */
  async removeAbandoned(): Promise<void> {
    for (const name of namesIn(this.root).filter(isDraft)) {
      const path = join(this.root, name);
      const at = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
      if (at !== undefined && isAbandoned(name, at, this.#world)) this.#trash.throwAway(path, DRAFTS);
    }
    await this.#trash.empty();
  }

  /** `null` while another process, or another part of this one, has it. The kernel frees a dead process's lock. */
  tryLock(id: string): { release(): void } | null {
    const database = openDatabase(join(this.root, "locks", id));
    try {
      database.exec("BEGIN EXCLUSIVE");
    } catch (error) {
      database.close();
      if (/locked|busy/i.test((error as Error).message)) return null;
      throw error;
    }
    return { release: () => database.close() };
  }
}

/** An owner in the trash has no dot; the name of a blueprint may. */
function hashOf(id: string): string {
  return id.slice(id.lastIndexOf("@") + 1);
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory).sort();
  } catch {
    return [];
  }
}

function readJson<Value>(path: string): Value | null {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as Value;
  } catch {
    return null;
  }
}
