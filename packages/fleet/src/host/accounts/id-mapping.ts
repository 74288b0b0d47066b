/**
 * Id-mapped mounts: files of one owner appear as another's without being changed. Workspaces have one owner on disk,
 * and each sandbox sees them as its own; what it writes gets that one owner again. A directory that is later renamed
 * into a mapped mount is mapped too.
 *
 * For a sandbox that this process starts, the mount is in a private namespace (`mountNamespace`). A container engine
 * resolves its sources on the host, so a container's mount is attached below the fleet's directory while the container
 * starts (`host-mounts.ts`).
 */

import { closeSync } from "node:fs";
import { MountNamespaces, type MountStep } from "./mount-namespaces.ts";
import type { Account } from "./sandbox-accounts.ts";
import { SystemCallError, systemCalls } from "./system-calls.ts";
import { UserNamespaces } from "./user-namespaces.ts";

/** A path whose files belong to `owner` on disk and shall appear as the sandbox's. */
export interface OwnedPath {
  readonly path: string;
  readonly owner: Account;
}

/** For the trial mount: no account has it. */
const TRIAL: Account = { uid: 2_000_000_001, gid: 2_000_000_001 };

/** Errors that mean the kernel or the file system cannot map ids. Any other error may be gone at the next try. */
const LASTING: ReadonlySet<string> = new Set(["EINVAL", "ENOSYS", "EOPNOTSUPP", "ENOTSUP"]);

/** `whole`: with everything mounted below the path. `top`: only the file system of the path itself. */
export type MappedScope = "whole" | "top";

interface Trial {
  readonly problem: string | null;
  /** Whether the next try would fail in the same way. */
  readonly lasts: boolean;
}

export class IdMapping {
  readonly #users = new UserNamespaces();
  readonly #namespaces = new MountNamespaces();
  readonly #trials = new Map<string, Promise<Trial>>();

  /**
   * Why the files below a path cannot be mapped; `null` when they can. Tries it once, and again after an error that may
   * be gone. Below a fleet's own directory other processes have mapped mounts, which cannot be mapped again: use `top`
   * there.
   */
  async problem(path: string, scope: MappedScope = "whole"): Promise<string | null> {
    const key = `${scope}:${path}`;
    const trial = this.#trials.get(key) ?? this.#try(path, scope);
    this.#trials.set(key, trial);
    const { problem, lasts } = await trial;
    if (!lasts && this.#trials.get(key) === trial) this.#trials.delete(key);
    return problem;
  }

  /** Starts the thread early, because its start takes a moment. */
  prepare(): void {
    if (systemCalls() !== null) this.#namespaces.prepare();
  }

  /** A descriptor of a mount namespace in which these paths belong to `account`, after the steps have run. */
  async mountNamespace(
    paths: readonly OwnedPath[],
    account: Account,
    steps: readonly MountStep[],
    signal: AbortSignal,
  ): Promise<number> {
    const opened: number[] = [];
    try {
      const mapped = [];
      for (const { path, owner } of paths) {
        const userNamespace = await this.#users.open(owner, account);
        opened.push(userNamespace);
        mapped.push({ path, userNamespace });
      }
      const descriptor = await this.#namespaces.make({ mapped, steps });
      if (signal.aborted) closeSync(descriptor);
      signal.throwIfAborted();
      return descriptor;
    } finally {
      for (const descriptor of opened) closeSync(descriptor);
    }
  }

  /** A mapped copy of the mount at a path, not attached yet; the caller closes it. */
  async copy({ path, owner }: OwnedPath, account: Account, scope: MappedScope = "whole"): Promise<number> {
    const calls = systemCalls();
    if (calls === null) throw new Error(NO_CALLS);
    const userNamespace = await this.#users.open(owner, account);
    try {
      const tree = calls.cloneTree(path, scope === "whole");
      try {
        calls.mapIds(tree, userNamespace);
        return tree;
      } catch (error) {
        closeSync(tree);
        throw error;
      }
    } finally {
      closeSync(userNamespace);
    }
  }

  close(): void {
    this.#users.close();
    this.#namespaces.close();
  }

  async #try(path: string, scope: MappedScope): Promise<Trial> {
    if (process.getuid?.() !== 0) return { problem: "only root can map the owners of files", lasts: true };
    if (systemCalls() === null) return { problem: NO_CALLS, lasts: true };
    try {
      closeSync(await this.copy({ path, owner: TRIAL }, TRIAL, scope));
      return { problem: null, lasts: true };
    } catch (error) {
      const problem = `the kernel or the file system cannot map owners there (${(error as Error).message})`;
      return { problem, lasts: error instanceof SystemCallError && LASTING.has(error.code) };
    }
  }
}

const NO_CALLS = "the native part (koffi) for system calls does not load on this machine";
