/**
 * The generation and token that a daemon accepts, as far as this process knows. Binding a blank gives its daemon new
 * ones, and another process may have done that: the markers hold the candidates, and the daemon accepts one of them.
 */

import { isSandlotError, SandlotError } from "@sandlot/contract";
import type { Credentials } from "../backend/backend.ts";
import type { Labels } from "../backend/labels.ts";
import type { DaemonAddress, DaemonTarget } from "./index.ts";

/** The parts of an engine's object that concern its daemon. */
export interface AskedObject {
  readonly name: string;
  readonly record: { readonly labels: Labels; readonly credentials: Credentials };
}

/** The addresses of a backend's daemons, and the credentials that each may have received since its start. */
export interface CredentialSource {
  address(name: string): DaemonAddress;
  given(sandboxId: Labels["sandboxId"]): Promise<readonly Credentials[]>;
}

export class KnownCredentials {
  readonly #source: CredentialSource;
  readonly #last = new Map<string, Credentials>();

  constructor(source: CredentialSource) {
    this.#source = source;
  }

  /** The daemon has accepted these. */
  note(name: string, { generation, token }: Credentials): void {
    this.#last.set(name, { generation, token });
  }

  forget(name: string): void {
    this.#last.delete(name);
  }

  target(name: string, sandboxId: string, { generation, token }: Credentials): DaemonTarget {
    return { address: this.#source.address(name), sandboxId, generation, token };
  }

  /** Tries the known credentials, the latest first, until the daemon accepts them. */
  async ask<T>({ name, record }: AskedObject, call: (target: DaemonTarget) => Promise<T>): Promise<T> {
    const { sandboxId } = record.labels;
    let refusal: unknown = new SandlotError("stale_generation", { sandboxId, generation: 0, current: null });
    for await (const credentials of this.#candidates(name, record)) {
      try {
        const answer = await call(this.target(name, sandboxId, credentials));
        this.note(name, credentials);
        return answer;
      } catch (error) {
        if (!isSandlotError(error, "stale_generation")) throw error;
        refusal = error;
      }
    }
    throw refusal;
  }

  async *#candidates(name: string, { labels, credentials }: AskedObject["record"]): AsyncGenerator<Credentials> {
    const last = this.#last.get(name);
    if (last !== undefined) yield last;
    yield* (await this.#source.given(labels.sandboxId)).toSorted((a, b) => b.generation - a.generation);
    yield credentials;
  }
}
