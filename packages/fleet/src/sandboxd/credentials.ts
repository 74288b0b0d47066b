/**
 * What a daemon answers to, as far as this process knows. A blank is told others when it is bound, perhaps by another
 * process: its markers say which those may be, and the daemon says which it is.
 */

import { isSandlotError, SandlotError } from "@sandlot/contract";
import type { Credentials } from "../backend/backend.ts";
import type { ObjectRecord } from "../backends/local/objects/object-store.ts";
import { type Layout, type ObjectName, socketPath } from "../host/layout.ts";
import type { DiskWorkspaces } from "../host/workspaces/disk-workspaces.ts";
import type { DaemonTarget } from "./index.ts";

/** An object on disk, as far as its daemon is concerned; the docker backend has them too. */
export interface AskedObject {
  readonly name: ObjectName;
  readonly record: Pick<ObjectRecord, "labels" | "credentials">;
}

export class KnownCredentials {
  readonly #layout: Layout;
  readonly #workspaces: DiskWorkspaces;
  readonly #last = new Map<ObjectName, Credentials>();

  constructor(layout: Layout, workspaces: DiskWorkspaces) {
    this.#layout = layout;
    this.#workspaces = workspaces;
  }

  /** These were taken by the daemon. */
  note(name: ObjectName, { generation, token }: Credentials): void {
    this.#last.set(name, { generation, token });
  }

  forget(name: ObjectName): void {
    this.#last.delete(name);
  }

  target(name: ObjectName, sandboxId: string, { generation, token }: Credentials): DaemonTarget {
    return { address: { path: socketPath(this.#layout, name) }, sandboxId, generation, token };
  }

  /** Asks with what is known until the daemon takes it. */
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

  async *#candidates(name: ObjectName, record: AskedObject["record"]): AsyncGenerator<Credentials> {
    const last = this.#last.get(name);
    if (last !== undefined) yield last;
    yield* (await this.#workspaces.markers(record.labels.sandboxId)).toSorted((a, b) => b.generation - a.generation);
    yield record.credentials;
  }
}
