/**
 * Commands by their id, of this attachment: the same id with the same command is one run. The newest ended ones are
 * kept.
 */

import { type ExecResult, SandlotError } from "@sandlot/contract";
import type { Outcome } from "./script.ts";

export interface Remembered {
  readonly execId: string;
  readonly command: string | readonly string[];
  readonly sessionId: string;
  readonly startedAt: number;
  readonly keepsStdinOpen: boolean;
  commandId: string | null;
  outcome: Outcome | null;
  stdoutBytes: number;
  stderrBytes: number;
}

const REMEMBERED_MAX = 128;

export class ExecMemory {
  readonly #runs = new Map<string, { readonly key: string; readonly result: Promise<unknown> }>();
  readonly #spawned = new Map<string, Remembered>();

  /** Joins the run of this id, or begins it. A run that could not begin is forgotten. */
  once<T extends ExecResult | Remembered>(
    execId: string,
    command: string | readonly string[],
    begin: () => Promise<T>,
  ): Promise<T> {
    const key = JSON.stringify(command);
    const known = this.#runs.get(execId);
    if (known !== undefined && known.key !== key) return Promise.reject(new SandlotError("exec_conflict", { execId }));
    if (known !== undefined) return known.result as Promise<T>;
    const result = begin();
    this.#runs.set(execId, { key, result });
    result.catch(() => this.#runs.delete(execId));
    forgetOldest(this.#runs);
    return result;
  }

  /** Returns those that were dropped for it. */
  note(spawned: Remembered): readonly Remembered[] {
    this.#spawned.set(spawned.execId, spawned);
    return forgetOldest(this.#spawned, ({ outcome }) => outcome !== null);
  }

  spawned(execId: string): Remembered | undefined {
    return this.#spawned.get(execId);
  }

  allSpawned(): readonly Remembered[] {
    return [...this.#spawned.values()];
  }
}

function forgetOldest<T>(map: Map<string, T>, may: (entry: T) => boolean = () => true): readonly T[] {
  const forgotten: T[] = [];
  for (const [id, entry] of map) {
    if (map.size <= REMEMBERED_MAX) break;
    if (!may(entry)) continue;
    map.delete(id);
    forgotten.push(entry);
  }
  return forgotten;
}
