/**
 * Separate accounts for the containers of root's fleet, and how a container sees files as its own.
 *
 *   mapped   files keep their owner on disk; id-mapped mounts show them as the container's (`host/accounts/`)
 *   given    workspaces are given to the account when they are bound: where the kernel, the file system or the engine's
 *            runtime cannot map owners, or the engine does not see mounts of this process
 *
 * Invariant: an engine whose containers are another machine's or another user's, and an image that runs as its own
 * user, have none: their containers share the fleet's one account.
 */

import { readFileSync } from "node:fs";
import {
  type Account,
  HostMounts,
  type IdMapping,
  type MappedScope,
  type SandboxAccounts,
  sandboxAccounts,
  sharingProblem,
} from "../../host/accounts/index.ts";
import type { Layout, ObjectName } from "../../host/layout.ts";
import { plainPath } from "../../host/limits/hierarchy.ts";
import type { Binding } from "../../host/mounts/mounts.ts";
import { ownedMounts, ownedPaths } from "../../host/mounts/owned-mounts.ts";
import { problemOf } from "../../observe/event-bus.ts";
import type { World } from "../../world/world.ts";
import { startsAsItself } from "./aio/options.ts";
import { supportsEgress } from "./egress.ts";
import type { EngineFacts } from "./engine/engine.ts";
import type { DockerSettings } from "./settings.ts";

export interface ContainerAccountsParts {
  readonly settings: DockerSettings;
  readonly facts: EngineFacts;
  readonly layout: Layout;
  readonly world: World;
  /**
   * Reports why a configured mount differs from its configuration (`mounts`), or why claims could not be given back
   * (`accounts`).
   */
  readonly onTrouble: (what: "mounts" | "accounts", problem: string) => void;
}

/** Why containers share one account; `null` when each has its own. */
export function sharedAccountReason(
  { docker, speaksAio, accountIds }: Pick<DockerSettings, "docker" | "speaksAio" | "accountIds">,
  facts: Pick<EngineFacts, "isOnThisHost" | "isRootless">,
): string | null {
  if (!facts.isOnThisHost) return "the engine is another machine's, and so are its accounts";
  if (facts.isRootless) return "the engine is rootless, and has the accounts of the user it runs as";
  if (speaksAio && startsAsItself(docker)) return "docker.capabilities lets the image start as its own user";
  return sharingProblem(accountIds ?? null);
}

/** The engine mounted something other than the mount that this process made for it. */
export class MountsUnseen extends Error {}

/**
 * Engines that do not see this process's mounts. The first container on each shows it, once for all fleets of the
 * process.
 */
const unseeingEngines = new Set<string>();

export class ContainerAccounts {
  readonly #parts: ContainerAccountsParts;
  readonly #accounts: SandboxAccounts | null;
  readonly #mapping: IdMapping;
  readonly #mounts: HostMounts;

  constructor(parts: ContainerAccountsParts) {
    const { settings, facts, layout, world } = parts;
    this.#parts = parts;
    this.#mapping = settings.mapping;
    this.#mounts = new HostMounts(layout.root, this.#mapping, world);
    this.#accounts = sharedAccountReason(settings, facts) === null ? sandboxAccounts("docker", settings, world) : null;
  }

  get areOwn(): boolean {
    return this.#accounts !== null;
  }

  /** `null` where containers share one. `path` exists as long as the object does. */
  claim(name: ObjectName, path: string): Account | null {
    return this.#accounts?.claim({ name, path }) ?? null;
  }

  /** The container is gone. */
  release(name: ObjectName, account: Account | null): void {
    this.#mounts.hide(name);
    if (account !== null) this.#accounts?.release(name, account);
  }

  /** The owner of a workspace on disk, and the owner that the container sees: one of the two. */
  async ownerOf(account: Account | null, runtime: string | null) {
    if (account === null) return { given: {}, shown: {} };
    const isMapped = (await this.#problem(this.#parts.layout.root, runtime, "top")) === null;
    return isMapped
      ? { given: {}, shown: { owner: this.#parts.settings.account } }
      : { given: { owner: account }, shown: {} };
  }

  /** Configured mounts as a container with this account gets them. */
  async owned(
    mounts: readonly Binding[],
    account: Account | null,
    runtime: string | null,
  ): Promise<readonly Binding[]> {
    if (account === null) return mounts;
    const problem = (path: string) => this.#problem(path, runtime);
    // The engine's own filter allows setuid files.
    const owned = await ownedMounts(mounts, { problem }, { refusesSetId: false });
    for (const problem of owned.problems) this.#parts.onTrouble("mounts", problem);
    return owned.mounts;
  }

  /** The bindings for the engine to mount. Undone by `settle`, or by `release`. */
  async show(name: ObjectName, bindings: readonly Binding[], account: Account | null): Promise<readonly Binding[]> {
    const paths = ownedPaths(bindings);
    if (account === null || paths.length === 0) return bindings;
    const shown = await this.#mounts.show(name, paths, account);
    return bindings.map((binding) => ({ ...binding, from: shown.get(binding.from) ?? binding.from }));
  }

  /** The container runs, with this process as its first: it has its own mounts. */
  settle(name: ObjectName, bindings: readonly Binding[], pid: number): void {
    const wanted = bindings.filter(({ owner }) => owner !== undefined);
    if (wanted.length === 0) return;
    this.#mounts.hide(name);
    const mapped = mappedPlaces(pid);
    // A container that has ended reports why where its readiness is awaited.
    if (mapped === null) return;
    if (wanted.every(({ to }) => mapped.has(to))) return;
    unseeingEngines.add(this.#parts.facts.id);
    throw new MountsUnseen("the engine does not see what this process mounts");
  }

  sweep(): void {
    try {
      this.#accounts?.sweep();
    } finally {
      this.#mounts.sweep();
    }
  }

  /**
   * Gives back the accounts that killed processes have claimed for containers they did not make. A failure can wait for
   * the next sweep.
   */
  sweepClaims(): void {
    try {
      this.#accounts?.sweep();
    } catch (error) {
      this.#parts.onTrouble("accounts", problemOf(error));
    }
  }

  close(): void {
    this.#mapping.close();
  }

  async #problem(path: string, runtime: string | null, scope: MappedScope = "whole"): Promise<string | null> {
    const { facts, settings } = this.#parts;
    // Where this process sees a container's processes, it also sees their mounts.
    if (!supportsEgress(facts, { ...settings.docker, runtime }))
      return "containers of this engine cannot be shown mapped owners";
    return unseeingEngines.has(facts.id)
      ? "the engine does not see what this process mounts"
      : this.#mapping.problem(path, scope);
  }
}

/**
 * The places of a process's mapped mounts; `null` when it has ended, also when its parent has not waited for it yet.
 */
function mappedPlaces(pid: number): ReadonlySet<string> | null {
  const lines = mountinfoOf(pid)
    ?.split("\n")
    .map((line) => line.split(" "));
  if (lines === undefined) return null;
  return new Set(
    lines
      .filter(([, , , , , options = ""]) => options.split(",").includes("idmapped"))
      .map((parts) => plainPath(parts[4] ?? "")),
  );
}

/** The kernel's errors for a process that has ended: it does not exist, or it has no mounts any more. */
const ENDED: ReadonlySet<string | undefined> = new Set(["ENOENT", "ESRCH", "EINVAL"]);

function mountinfoOf(pid: number): string | null {
  try {
    return readFileSync(`/proc/${pid}/mountinfo`, "utf8");
  } catch (error) {
    if (ENDED.has((error as NodeJS.ErrnoException).code)) return null;
    throw error;
  }
}
