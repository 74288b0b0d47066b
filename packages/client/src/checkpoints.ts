/**
 * Checkpoints of threads through a gateway: earlier states of a workspace and its home. Memory and processes are not
 * kept. A checkpoint is named by its id, an unambiguous beginning of it, or its label.
 */

import {
  type Checkpoint,
  type CheckpointDiff,
  type CheckpointRequest,
  checkpointDiffSchema,
  checkpointListSchema,
  checkpointSchema,
  type DiffRequest,
  type RestoredCheckpointReply,
  type RestoreRequest,
  restoredCheckpointSchema,
  type SeededThreadReply,
  seededThreadSchema,
  type TakenCheckpointReply,
  takenCheckpointSchema,
  type UndoRequest,
  type VerifiedCheckpointsReply,
  verifiedCheckpointsSchema,
} from "@sandlot/contract";
import { randomId } from "./wire/clock.ts";
import type { Transport } from "./wire/transport.ts";

interface Abortable {
  readonly signal?: AbortSignal;
}

/** A tar archive, plain or gzip. */
export type Archive = Blob | Uint8Array | AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>;

/** A thread of the client's own user, or, for a platform's or an operator's key, of another one. */
type ThreadOfUser = string | { readonly thread: string; readonly user?: string };

export class ClientCheckpoints {
  readonly #transport: Transport;
  readonly #actingFor: (user: string) => ClientCheckpoints;

  constructor(transport: Transport, actingFor: (user: string) => ClientCheckpoints) {
    this.#transport = transport;
    this.#actingFor = actingFor;
  }

  /** Newest first. */
  async list(thread: string): Promise<readonly Checkpoint[]> {
    const call = { method: "GET", path: pathOf(thread, "checkpoints"), repeatable: true } as const;
    return (await this.#transport.json(checkpointListSchema, call)).checkpoints;
  }

  find(thread: string, checkpoint: string): Promise<Checkpoint> {
    const path = pathOf(thread, "checkpoints", checkpoint);
    return this.#transport.json(checkpointSchema, { method: "GET", path, repeatable: true });
  }

  /** Nothing changed and no label: nothing is written, and the newest one is the answer. */
  take(thread: string, { signal, ...json }: CheckpointRequest & Abortable = {}): Promise<TakenCheckpointReply> {
    const path = pathOf(thread, "checkpoints");
    return this.#transport.json(takenCheckpointSchema, { method: "POST", path, json, signal });
  }

  /** Without `from` since the newest state that differs from the present, without `to` until now. */
  diff(thread: string, { signal, ...json }: DiffRequest & Abortable = {}): Promise<CheckpointDiff> {
    const path = pathOf(thread, "diff");
    return this.#transport.json(checkpointDiffSchema, { method: "POST", path, json, signal, repeatable: true });
  }

  /**
   * Brings back a checkpoint, whole or some paths. Ends the thread's sandbox; the present is kept as a checkpoint.
   * `sandbox_in_use` while others hold it, unless forced.
   */
  restore(
    thread: string,
    checkpoint: string,
    options: Omit<RestoreRequest, "checkpoint"> & Abortable = {},
  ): Promise<RestoredCheckpointReply> {
    return this.#change(thread, "restore", { ...options, checkpoint });
  }

  /** Goes back to the newest state that differs from the present; again, to the one before. */
  undo(of: ThreadOfUser, options: UndoRequest & Abortable = {}): Promise<RestoredCheckpointReply> {
    if (typeof of === "string") return this.#change(of, "undo", options);
    const { thread, user } = of;
    const client = user === undefined || user === this.#transport.user ? this : this.#actingFor(user);
    return client.#change(thread, "undo", options);
  }

  /** Returns from the newest undo. */
  redo(thread: string, options: UndoRequest & Abortable = {}): Promise<RestoredCheckpointReply> {
    return this.#change(thread, "redo", options);
  }

  async remove(thread: string, checkpoint: string): Promise<void> {
    await this.#transport.done({ method: "DELETE", path: pathOf(thread, "checkpoints", checkpoint) });
  }

  /** Reads all that a checkpoint has, or all of them. */
  verify(
    thread: string,
    options: { readonly checkpoint?: string; readonly requestId?: string } & Abortable = {},
  ): Promise<VerifiedCheckpointsReply> {
    const { signal, ...json } = options;
    const path = pathOf(thread, "checkpoints", "verify");
    return this.#transport.json(verifiedCheckpointsSchema, { method: "POST", path, json, signal, repeatable: true });
  }

  /** A tar archive. */
  async *export(thread: string, checkpoint: string, { signal }: Abortable = {}): AsyncGenerator<Uint8Array> {
    const path = pathOf(thread, "checkpoints", checkpoint, "archive");
    const response = await this.#transport.send({ method: "GET", path, signal });
    const reader = response.body?.getReader();
    try {
      while (reader !== undefined) {
        const { value, done } = await reader.read();
        if (done) return;
        yield value;
      }
    } finally {
      await reader?.cancel().catch(() => undefined);
    }
  }

  /** Begins a thread with the files of a tar archive, plain or gzip. `thread_exists` where it has files. */
  seed(thread: string, archive: Archive, { signal }: Abortable = {}): Promise<SeededThreadReply> {
    const headers = { "content-type": "application/octet-stream" };
    const path = pathOf(thread, "archive");
    return this.#transport.json(seededThreadSchema, { method: "PUT", path, body: bodyOf(archive), headers, signal });
  }

  /** The request has a name, so asking again after a lost answer finds the result of the first. */
  #change(
    thread: string,
    what: "restore" | "undo" | "redo",
    { signal, requestId = randomId(), ...options }: UndoRequest & Abortable & { readonly checkpoint?: string },
  ): Promise<RestoredCheckpointReply> {
    const json = { ...options, requestId };
    const path = pathOf(thread, what);
    return this.#transport.json(restoredCheckpointSchema, { method: "POST", path, json, signal, repeatable: true });
  }
}

function pathOf(thread: string, ...parts: readonly string[]): string {
  return `/v1/threads/${[thread, ...parts].map(encodeURIComponent).join("/")}`;
}

function bodyOf(archive: Archive): Blob | Uint8Array | ReadableStream<Uint8Array> {
  if (archive instanceof Blob || archive instanceof Uint8Array || archive instanceof ReadableStream) return archive;
  const pieces = archive[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { value, done } = await pieces.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await pieces.return?.();
    },
  });
}
