/**
 * A host whose process dies at a chosen step of its store: before the step, or after it and before its answer. From then
 * on it reaches neither its store nor its engine, so that nothing of it can clean up.
 */

import type { Backend } from "../../src/backend/backend.ts";
import type { Store } from "../../src/store/store.ts";

export interface DeathAt {
  /** `entries.` names a step of shared entries. */
  readonly step: keyof Store | "entries.put" | "entries.delete";
  readonly when: "before" | "after";
}

const STAYS = new Set<PropertyKey>(["close", "then", "watch", "observe"]);

export class MortalHost {
  #plan: DeathAt | null = null;
  #isDead = false;
  #onDeath: () => void = () => {};

  /** Resolves at the death. */
  dieAt(plan: DeathAt): Promise<void> {
    this.#plan = plan;
    return new Promise((resolve) => {
      this.#onDeath = resolve;
    });
  }

  store(store: Store): Store {
    const entries = store.entries === null ? null : this.#guarded(store.entries, "entries.");
    return this.#guarded(store, "", (name) => (name === "entries" ? entries : undefined));
  }

  backend(backend: Backend): Backend {
    return this.#guarded(backend, null);
  }

  /** `prefix`: of the names of its steps; `null`: none of them is one. */
  #guarded<T extends object>(target: T, prefix: string | null, instead?: (name: PropertyKey) => unknown): T {
    return new Proxy(target, {
      get: (_, name) => {
        const value: unknown = instead?.(name) ?? Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        const call = value.bind(target) as (...given: unknown[]) => unknown;
        if (STAYS.has(name)) return call;
        return (...given: unknown[]) =>
          this.#called(prefix === null ? null : prefix + String(name), () => call(...given));
      },
    });
  }

  #called(step: string | null, call: () => unknown): unknown {
    if (this.#isDead) return dead();
    if (step === null || step !== this.#plan?.step) return call();
    if (this.#plan.when === "before") return this.#die();
    return Promise.resolve(call()).then(() => this.#die());
  }

  #die(): Promise<never> {
    this.#isDead = true;
    this.#onDeath();
    return dead();
  }
}

function dead(): Promise<never> {
  return Promise.reject(new Error("this host is dead"));
}
