/**
 * Applies a sandbox's disk budget to writes without the sandbox (uploads, artifacts, branches). A write that does not
 * fit is `disk_limit_exceeded`, before anything appears under its name.
 *
 * The budget is that of the sandbox's blueprint; for a thread without a sandbox, the default blueprint's.
 *
 * Invariants
 * - Concurrent requests of one thread share one budget, so two never take the same room.
 * - The workspace is measured when the first of them begins, and their writes count on top until the last of them has
 *   ended: rather too much than too little. Nothing is kept between requests.
 */

import { type FileStat, type SandboxSummary, SandlotError, WORKSPACE_DIRECTORIES } from "@sandlot/contract";
import type { Budget as DiskLimits } from "../backend/checkpoints.ts";
import type { WorkspaceUsage } from "../backend/host-workspaces.ts";
import { DEFAULT_BLUEPRINT } from "../config/defaults.ts";
import { diskBudget } from "../config/disk-budget.ts";
import type { Settings } from "../config/settings.ts";
import type { ThreadKey } from "./thread-use.ts";
import type { HostWorkspaces, StagedFile, WorkspaceFiles } from "./workspace-access.ts";

/** The limits of a blueprint's workspaces; `null`: unlimited. */
type LimitsOf = (blueprint: string) => DiskLimits | null;

interface BudgetParts {
  readonly limitsOf: LimitsOf;
  readonly find: (key: ThreadKey) => Promise<SandboxSummary | null>;
}

/** The same workspaces with budgets; unchanged where no blueprint has one. */
export function budgetedWorkspaces(
  host: HostWorkspaces,
  blueprints: Settings["blueprints"],
  find: BudgetParts["find"],
): HostWorkspaces {
  const limitsOf: LimitsOf = (name) => diskBudget(blueprints, name);
  if (Object.keys(blueprints).every((name) => limitsOf(name) === null)) return host;
  const budgets = new Budgets(host, { find, limitsOf });
  const { branch } = host;
  return {
    ...host,
    use: (key, use, signal) => {
      const withBudget = async (files: WorkspaceFiles) => {
        const budgeted = new BudgetedFiles(files, () => budgets.open(key));
        try {
          return await use(budgeted);
        } finally {
          await budgeted.close();
        }
      };
      return host.use(key, withBudget, signal);
    },
    ...(branch !== undefined && {
      branch: (from, to) => branch.call(host, from, to, limitsOf(DEFAULT_BLUEPRINT) ?? undefined),
    }),
  };
}

/** What a thread may still write. `null`: unlimited. */
type Budget = Rest | null;

interface Shared {
  readonly budget: Promise<Budget>;
  users: number;
}

interface Opened {
  readonly budget: Budget;
  close(): void;
}

/** One budget for each thread with a running write. */
class Budgets {
  readonly #host: HostWorkspaces;
  readonly #parts: BudgetParts;
  readonly #shared = new Map<string, Shared>();

  constructor(host: HostWorkspaces, parts: BudgetParts) {
    this.#host = host;
    this.#parts = parts;
  }

  async open(key: ThreadKey): Promise<Opened> {
    const name = JSON.stringify([key.user, key.thread]);
    const shared = this.#shared.get(name) ?? { budget: this.#measure(key), users: 0 };
    this.#shared.set(name, shared);
    shared.users += 1;
    const close = () => {
      shared.users -= 1;
      if (shared.users === 0) this.#shared.delete(name);
    };
    try {
      return { budget: await shared.budget, close };
    } catch (error) {
      close();
      throw error;
    }
  }

  async #measure(key: ThreadKey): Promise<Budget> {
    const { find, limitsOf } = this.#parts;
    const limits = limitsOf((await find(key))?.blueprint ?? DEFAULT_BLUEPRINT);
    if (limits === null) return null;
    return new Rest(limits, (await this.#host.measure?.(key, limits.maxFiles)) ?? EMPTY);
  }
}

/** The content of a new workspace. */
const EMPTY: WorkspaceUsage = {
  bytes: WORKSPACE_DIRECTORIES.length * 4_096,
  files: WORKSPACE_DIRECTORIES.length,
  complete: true,
};

class Rest {
  #bytes: number;
  #files: number;

  constructor({ maxBytes, maxFiles }: DiskLimits, { bytes, files, complete }: WorkspaceUsage) {
    this.#bytes = complete ? maxBytes - bytes : 0;
    this.#files = complete ? maxFiles - files : 0;
  }

  /** Runs a write that creates one file and takes bytes as they come; a failure gives them back. */
  async admit<T>(path: string, write: (take: (bytes: number) => void) => Promise<T>): Promise<T> {
    let taken = 0;
    const take = (bytes: number) => {
      if (bytes > this.#bytes) throw new SandlotError("disk_limit_exceeded", { path });
      this.#bytes -= bytes;
      taken += bytes;
    };
    if (this.#files < 1) throw new SandlotError("disk_limit_exceeded", { path });
    this.#files -= 1;
    try {
      return await write(take);
    } catch (error) {
      this.#files += 1;
      this.#bytes += taken;
      throw error;
    }
  }
}

/** The files of one request; the first write opens the budget. */
class BudgetedFiles implements WorkspaceFiles {
  readonly #inner: WorkspaceFiles;
  readonly #openBudget: () => Promise<Opened>;
  #opened: Promise<Opened> | null = null;

  constructor(inner: WorkspaceFiles, openBudget: () => Promise<Opened>) {
    this.#inner = inner;
    this.#openBudget = openBudget;
  }

  stat(path: string): Promise<FileStat | null> {
    return this.#inner.stat(path);
  }

  list(directory: string): Promise<readonly FileStat[]> {
    return this.#inner.list(directory);
  }

  read(path: string, range?: { readonly offset?: number; readonly length?: number }): AsyncIterable<Uint8Array> {
    return this.#inner.read(path, range);
  }

  stage(directory: string, content: AsyncIterable<Uint8Array>): Promise<StagedFile> {
    return this.#admit(directory, content, (counted) => this.#inner.stage(directory, counted));
  }

  write(path: string, content: AsyncIterable<Uint8Array>, ifVersion: string | null): Promise<FileStat> {
    return this.#admit(path, content, (counted) => this.#inner.write(path, counted, ifVersion));
  }

  remove(path: string): Promise<void> {
    return this.#inner.remove(path);
  }

  async close(): Promise<void> {
    // A failure to open was already reported to the writer.
    const opened = await this.#opened?.catch(() => null);
    opened?.close();
  }

  async #admit<T>(
    path: string,
    content: AsyncIterable<Uint8Array>,
    write: (content: AsyncIterable<Uint8Array>) => Promise<T>,
  ): Promise<T> {
    this.#opened ??= this.#openBudget();
    const { budget } = await this.#opened;
    return budget === null ? write(content) : budget.admit(path, (take) => write(counted(content, take)));
  }
}

async function* counted(content: AsyncIterable<Uint8Array>, take: (bytes: number) => void) {
  for await (const piece of content) {
    take(piece.byteLength);
    yield piece;
  }
}
