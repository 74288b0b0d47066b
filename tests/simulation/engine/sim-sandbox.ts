/**
 * The inside of a simulated sandbox, as a holder reaches it. It has one file, the journal: an append is a write token,
 * and a read returns every token of the thread's workspace. The daemon checks generation and token on every use.
 */

import { type Sandbox, SandlotError } from "@sandlot/contract";
import type { Attachment, Target } from "../../../packages/fleet/src/backend/backend.ts";
import { partialSandbox } from "../../../packages/fleet/src/testing/partial-sandbox.ts";
import type { Plan } from "../process/calls.ts";
import type { Instance } from "../process/instance.ts";
import type { SimObject } from "./ledger.ts";
import { type EngineParts, isCutOff } from "./sim-backend.ts";

export const JOURNAL = "/mnt/user-data/workspace/journal";

/** A write names its owner, so that a sandbox that serves two threads gives itself away. */
export interface Entry {
  readonly owner: string;
  readonly token: string;
}

export function connect(instance: Instance, parts: EngineParts, object: SimObject, target: Target): Attachment {
  const { scheduler, random } = parts;
  let resolve: () => void = () => undefined;
  const closed = new Promise<void>((settle) => {
    resolve = settle;
  });
  const onDeath = () => {
    // A connection to a vanished machine may stay silent; the engine's events and probes must report it.
    if (!parts.connectionsNoticeDeath) return;
    scheduler.after(random.between(0, 50), () => instance.process.deliver(() => resolve()));
  };
  object.connections.add(onDeath);
  return {
    sandbox: new Journal(instance, parts, target).sandbox(),
    closed,
    close: async () => {
      object.connections.delete(onDeath);
      resolve();
    },
  };
}

class Journal {
  readonly #instance: Instance;
  readonly #parts: EngineParts;
  readonly #target: Target;

  constructor(instance: Instance, parts: EngineParts, target: Target) {
    this.#instance = instance;
    this.#parts = parts;
    this.#target = target;
  }

  sandbox(): Sandbox {
    const { sandboxId, generation } = this.#target;
    return partialSandbox(sandboxId, generation, {
      files: {
        append: (_, content) => this.#append(JSON.parse(String(content)) as Entry),
        readText: () => this.#read(),
      },
    });
  }

  #append(entry: Entry): Promise<void> {
    return this.#use("wrote", () => {
      const { ledger, audit } = this.#parts;
      const object = ledger.reach(this.#target);
      object.writers.add(entry.owner);
      ledger.workspaceOf(object)?.tokens.add(entry.token);
      audit.wrote(this.#instance, object, entry.token);
    });
  }

  #read(): Promise<string> {
    return this.#use("read", () => {
      const { ledger } = this.#parts;
      const workspace = ledger.workspaceOf(ledger.reach(this.#target));
      return JSON.stringify({ owner: workspace?.owner ?? null, tokens: [...(workspace?.tokens ?? [])] });
    });
  }

  #use<T>(what: string, effect: () => T): Promise<T> {
    const { random, trace, faults } = this.#parts;
    const ms = random.between(0, 6);
    const told = () => {
      const result = effect();
      trace.add(this.#instance.name, what, () => `${this.#target.sandboxId} generation ${this.#target.generation}`);
      return result;
    };
    const plan: Plan = { effectMs: ms, answerMs: ms };
    const isCut = isCutOff(this.#instance, this.#parts);
    if (!isCut && !faults.hits("attach-unreachable")) return this.#instance.calls.make(plan, told);
    const { sandboxId } = this.#target;
    const error = new SandlotError("sandbox_unreachable", { sandboxId, problem: "simulated", retryAfterMs: 100 });
    const { effectMs } = plan;
    return this.#instance.calls.make({ ...plan, effectMs: isCut ? null : effectMs, error }, told);
  }
}
