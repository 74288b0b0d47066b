/**
 * Environments on disk.
 *
 *   environments/<name>@<hash>/tree    what sandboxes see at /opt/env
 *                             /log     what the setup printed
 *                             /ok      facts; made in the draft, so it appears with the rename that commits a build
 *                             /failed  the reason, in place of `ok` and `tree`
 *   environments/.sandlot-draft-*      a build in progress, or of a dead process
 *   environments/locks/<name>@<hash>   an SQLite file, locked by the process that builds or removes
 *   environments/uses/<sandboxId>-<generation>   the name of the environment that it has mounted
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
import { rm } from "node:fs/promises";
import { join } from "node:path";
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

export interface EnvironmentEntry {
  readonly id: string;
  readonly facts: EnvironmentFacts | null;
  readonly failure: Failure | null;
  readonly usedAt: number;
  /** Sandboxes that have it mounted, as far as is known. */
  readonly uses: readonly string[];
}

export class EnvironmentStore {
  readonly root: string;
  readonly #world: World;

  constructor(home: string, world: World) {
    this.root = join(home, "environments");
    this.#world = world;
  }

  make(): void {
    makeDirectories(this.root, 0o700);
    for (const name of ["locks", "uses"]) mkdirSync(join(this.root, name), { recursive: true, mode: 0o700 });
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
  addUse(id: string, sandbox: string): void {
    writeFileSync(join(this.root, "uses", sandbox), id, { mode: 0o600 });
    const nowSeconds = this.#world.wallMs() / 1_000;
    if (existsSync(join(this.root, id))) utimesSync(join(this.root, id), nowSeconds, nowSeconds);
  }

  dropUse(sandbox: string): void {
    rmSync(join(this.root, "uses", sandbox), { force: true });
  }

  /** The environment of a sandbox, of any of its generations. */
  usedBy(sandboxId: string): string | null {
    const found = this.uses().filter(({ sandbox }) => sandbox.startsWith(`${sandboxId}-`));
    return found.at(-1)?.id ?? null;
  }

  uses(): readonly { readonly sandbox: string; readonly id: string; readonly at: number }[] {
    return namesIn(join(this.root, "uses")).flatMap((sandbox) => {
      const path = join(this.root, "uses", sandbox);
      try {
        return [{ sandbox, id: readFileSync(path, "utf8"), at: statSync(path).mtimeMs }];
      } catch {
        return []; // Dropped meanwhile.
      }
    });
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
  commit(id: string, draft: string, facts: EnvironmentFacts): void {
    writeFileSync(join(draft, "ok"), JSON.stringify(facts));
    this.#replace(id, draft);
  }

  fail(id: string, draft: string, failure: Failure): void {
    writeFileSync(join(draft, "failed"), JSON.stringify(failure));
    rmSync(join(draft, "tree"), { recursive: true, force: true });
    this.#replace(id, draft);
  }

  discard(draft: string): Promise<void> {
    return rm(draft, { recursive: true, force: true });
  }

  #replace(id: string, draft: string): void {
    const path = join(this.root, id);
    // Without `ok` it is the log of an earlier attempt, or a tree that is going: no sandbox has it.
    if (existsSync(path)) renameSync(path, this.#trash());
    renameSync(draft, path);
  }

  /** Whether it is gone. Not when a sandbox uses it. The caller holds the lock. */
  async remove(id: string): Promise<boolean> {
    const [path, ok] = [join(this.root, id), join(this.root, id, "ok")];
    if (!existsSync(path)) return true;
    const going = `${ok}.going`;
    if (existsSync(ok)) renameSync(ok, going);
    if (this.uses().some((use) => use.id === id)) {
      if (existsSync(going)) renameSync(going, ok);
      return false;
    }
    const trash = this.#trash();
    renameSync(path, trash);
    await rm(trash, { recursive: true, force: true });
    return true;
  }

  /** A name that is removed later where this process ends before it has done so. */
  #trash(): string {
    return join(this.root, draftName(this.#world));
  }

  async removeAbandoned(): Promise<void> {
    for (const name of namesIn(this.root).filter(isDraft)) {
      const path = join(this.root, name);
      const at = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
      if (at !== undefined && isAbandoned(name, at, this.#world)) await rm(path, { recursive: true, force: true });
    }
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
