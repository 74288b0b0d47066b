/**
 * Watches over the wire: one JSON line per change, as long as the reader stays.
 *
 * Changes are gathered for a moment, so that many writes to one file are one `modified`. A slow reader gets an
 * `overflow` instead of the changes that do not fit.
 */

import type { ServerResponse } from "node:http";
import type { FileChange } from "@sandlot/contract";
import { timer } from "../clock.ts";
import { fileError } from "./file-error.ts";
import { TreeWatch } from "./tree-watch.ts";

const GATHER_MS = 10;
/** Pending changes of one reader. */
const QUEUE_MAX = 8_192;

export function watchChanges(path: string, recursive: boolean, response: ServerResponse): Promise<void> {
  const queue = new ChangeQueue(response);
  let watch: TreeWatch;
  try {
    watch = new TreeWatch(
      path,
      recursive,
      (change) => queue.add(change),
      () => queue.end(),
    );
  } catch (error) {
    throw fileError(error, path);
  }
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  queue.add({ type: "ready", path });
  queue.flush();
  return new Promise((resolve) => {
    response.on("close", () => {
      watch.close();
      queue.close();
      resolve();
    });
  });
}

class ChangeQueue {
  readonly #response: ServerResponse;
  #waiting: FileChange[] = [];
  /** The last pending change of each path. */
  #last = new Map<string, FileChange["type"]>();
  #timer: { cancel(): void } | null = null;
  #overflowed = false;
  #ending = false;

  constructor(response: ServerResponse) {
    this.#response = response;
    response.on("drain", () => this.flush());
  }

  add(change: FileChange): void {
    if (this.#ending) return;
    const { type, path } = change;
    if (type === "overflow") {
      if (this.#overflowed) return;
      this.#overflowed = true;
    } else if (this.#waiting.length >= QUEUE_MAX) {
      this.add({ type: "overflow", path });
      return;
    }
    const last = this.#last.get(path);
    if (type === "modified" && (last === "created" || last === "modified")) return;
    this.#last.set(path, type);
    this.#waiting.push(change);
    this.#timer ??= timer(GATHER_MS, () => this.flush());
  }

  flush(): void {
    this.#timer?.cancel();
    this.#timer = null;
    if (this.#response.writableNeedDrain || this.#response.destroyed) return;
    const lines = this.#waiting.map((change) => `${JSON.stringify(change)}\n`).join("");
    this.#waiting = [];
    this.#last.clear();
    this.#overflowed = false;
    if (this.#ending) this.#response.end(lines);
    else if (lines !== "") this.#response.write(lines);
  }

  /** The watched path is gone: the pending changes are the last. */
  end(): void {
    if (this.#ending) return;
    this.#ending = true;
    this.flush();
  }

  close(): void {
    this.#timer?.cancel();
    this.#waiting = [];
  }
}
