/**
 * The sandbox as a lease shows it: every use asks again whether the lease and the generation still stand.
 *
 *   released            → lease_released
 *   lease moved on      → stale_generation      (take `lease.sandbox` again)
 *   slot lost           → restart, then the use runs in the next generation; or sandbox_lost without autoRestart
 *   otherwise           → the backend's sandbox, whose daemon checks generation and token once more
 */

import {
  type ExecOptions,
  type ExecResult,
  type Generation,
  isSandlotError,
  type LossReason,
  type Sandbox,
  type SandboxFiles,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import type { LeaseHandle } from "./lease.ts";
import type { Slot } from "./slot.ts";

export class LeasedSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  readonly slot: Slot;
  readonly #lease: LeaseHandle;
  #files: SandboxFiles | null = null;

  constructor(lease: LeaseHandle, slot: Slot) {
    this.id = slot.sandboxId;
    this.generation = slot.generation;
    this.slot = slot;
    this.#lease = lease;
  }

  exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult> {
    return this.#use((sandbox) => sandbox.exec(command, options));
  }

  get files(): SandboxFiles {
    this.#files ??= new CheckedFiles((use) => this.#use((sandbox) => use(sandbox.files)));
    return this.#files;
  }

  #use<T>(use: (sandbox: Sandbox) => Promise<T>): Promise<T> {
    return this.#lease.used(async () => {
      let slot = await this.#presentSlot();
      // It may have been lost again between being found and this turn.
      while (!slot.isOpen()) slot = await this.#lease.home.restart(this.#lease);
      try {
        return await use(slot.sandbox);
      } catch (error) {
        // What was running is lost, even where the next use will find a new sandbox.
        this.#lease.home.suspect(slot, error);
        const loss = isSandlotError(error, "sandbox_unreachable") ? slot.loss : null;
        throw loss === null ? error : sandboxLost(slot, await loss);
      }
    });
  }

  async #presentSlot(): Promise<Slot> {
    const lease = this.#lease;
    if (lease.isReleased()) throw new SandlotError("lease_released", { leaseId: lease.id });
    if (lease.slot !== this.slot) throw staleGeneration(this.slot, lease.slot.generation);
    return this.slot.isLost() ? await lease.home.restart(lease) : this.slot;
  }
}

/** A view for `fleet.get`: without a lease nothing is restarted. */
export class HeldSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  readonly files: SandboxFiles;
  readonly #slot: Slot;
  readonly #current: () => Slot | undefined;

  /** `current` finds the thread's present slot, to tell a dead sandbox from a superseded one. */
  constructor(slot: Slot, current: () => Slot | undefined) {
    this.id = slot.sandboxId;
    this.generation = slot.generation;
    this.#slot = slot;
    this.#current = current;
    this.files = new CheckedFiles(async (use) => use((await this.#present()).files));
  }

  async exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult> {
    return (await this.#present()).exec(command, options);
  }

  async #present(): Promise<Sandbox> {
    const slot = this.#slot;
    if (slot.isOpen()) return slot.sandbox;
    const successor = this.#current();
    if (successor !== undefined || slot.loss === null) throw staleGeneration(slot, successor?.generation ?? null);
    throw sandboxLost(slot, await slot.loss);
  }
}

export function sandboxLost(slot: Slot, reason: LossReason): SandlotError {
  const { sandboxId, generation } = slot;
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason });
}

function staleGeneration(slot: Slot, current: number | null): SandlotError {
  const { sandboxId, generation } = slot;
  return new SandlotError("stale_generation", { sandboxId, generation, current });
}

type Through = <T>(use: (files: SandboxFiles) => Promise<T>) => Promise<T>;
type Arguments<Name extends keyof SandboxFiles> = Parameters<SandboxFiles[Name]>;

/** Files, each use of which goes through a check. One object, because there is one for each lease that uses files. */
class CheckedFiles implements SandboxFiles {
  readonly #through: Through;

  constructor(through: Through) {
    this.#through = through;
  }

  read(...args: Arguments<"read">) {
    return this.#through((files) => files.read(...args));
  }
  readText(...args: Arguments<"readText">) {
    return this.#through((files) => files.readText(...args));
  }
  write(...args: Arguments<"write">) {
    return this.#through((files) => files.write(...args));
  }
  append(...args: Arguments<"append">) {
    return this.#through((files) => files.append(...args));
  }
  mkdir(...args: Arguments<"mkdir">) {
    return this.#through((files) => files.mkdir(...args));
  }
  rename(...args: Arguments<"rename">) {
    return this.#through((files) => files.rename(...args));
  }
  remove(...args: Arguments<"remove">) {
    return this.#through((files) => files.remove(...args));
  }
  stat(...args: Arguments<"stat">) {
    return this.#through((files) => files.stat(...args));
  }
  list(...args: Arguments<"list">) {
    return this.#through((files) => files.list(...args));
  }
  glob(...args: Arguments<"glob">) {
    return this.#through((files) => files.glob(...args));
  }
  grep(...args: Arguments<"grep">) {
    return this.#through((files) => files.grep(...args));
  }
}
