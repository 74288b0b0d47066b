/**
 * Makes Python find the packages of an environment: after those of the home, so that a newer version installed there
 * wins and pip may install one, and before those of the system.
 *
 * Python reads a file of the home's own packages for it. Variables would not do: what `PYTHONPATH` names comes first,
 * and a command that sets it would lose the environment.
 *
 * Invariants
 * - One write for each generation of a sandbox that this process attaches, and none for an environment without Python.
 * - A home that cannot take the file does not keep its thread from a sandbox.
 */

import { ENVIRONMENT_ROOT, type Generation, type Sandbox, type SandboxId } from "@sandlot/contract";
import type { EnvironmentStore } from "./environment-store.ts";

interface Known {
  readonly home: string;
  readonly pythonPaths: readonly string[];
  named: Generation | null;
}

/** More than one engine has; the oldest are read again. */
const KNOWN_MAX = 10_000;

export class PythonPackages {
  readonly #store: EnvironmentStore;
  readonly #known = new Map<SandboxId, Known | null>();

  constructor(store: EnvironmentStore) {
    this.#store = store;
  }

  /** Rejects when the home does not take the file. It is then tried again at the next attach. */
  async name(
    sandbox: Sandbox,
    { sandboxId, generation }: { readonly sandboxId: SandboxId; readonly generation: Generation },
  ): Promise<void> {
    const known = this.#of(sandboxId);
    if (known === null || known.named === generation) return;
    for (const path of known.pythonPaths)
      await sandbox.files.write(`${known.home}/.local/${path}/_env.pth`, `${ENVIRONMENT_ROOT}/${path}\n`);
    known.named = generation;
  }

  /** What a sandbox was made with never changes. */
  #of(sandboxId: SandboxId): Known | null {
    const seen = this.#known.get(sandboxId);
    if (seen !== undefined) return seen;
    const use = this.#store.usedBy(sandboxId);
    const { pythonPaths = [] } = (use && this.#store.facts(use.id)) ?? {};
    const known = use === null || pythonPaths.length === 0 ? null : { home: use.home, pythonPaths, named: null };
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    this.#known.set(sandboxId, known);
    return known;
  }
}
