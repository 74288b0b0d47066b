/** Timelines in this process's memory, for threads that live there too. The threads that were written last are kept. */

import type { World } from "../world/world.ts";
import type { WorkspaceOwner } from "./checkpoints.ts";
import {
  encodeLines,
  firstOffset,
  ownerHash,
  TIMELINE_MAX_BYTES,
  TIMELINE_PIECE_BYTES,
  type TimelineLine,
  type TimelinePurge,
  type Timelines,
  type TimelineText,
} from "./timelines.ts";

interface Log {
  first: number;
  isWhole: boolean;
  pieces: Buffer[];
  purge: TimelinePurge | null;
}

/** With full logs, 64 MiB. */
const BYTES_MAX = 64 * TIMELINE_MAX_BYTES;
/** Also of threads whose log is empty, because only a purge is remembered. */
const THREADS_MAX = 10_000;

export class MemoryTimelines implements Timelines {
  readonly gatherMs = 50;
  readonly #world: Pick<World, "wallMs">;
  /** In the order of their last write. */
  readonly #logs = new Map<string, Log>();
  #bytes = 0;

  constructor(world: Pick<World, "wallMs">) {
    this.#world = world;
  }

  async append(owner: WorkspaceOwner, lines: readonly TimelineLine[]): Promise<void> {
    const key = ownerHash(owner);
    const log = this.#logs.get(key) ?? { first: 0, isWhole: true, pieces: [], purge: null };
    const bytes = encodeLines(lines, log.purge);
    if (bytes.byteLength === 0) return;
    this.#logs.delete(key);
    this.#logs.set(key, log);
    if (log.first === 0) log.first = firstOffset(this.#world.wallMs());
    log.pieces.push(bytes);
    this.#bytes += bytes.byteLength;
    while (sizeOf(log) > TIMELINE_MAX_BYTES) this.#dropFrom(log);
    while (this.#logs.size > THREADS_MAX || this.#bytes > BYTES_MAX) this.#forgetOldest();
  }

  async read(owner: WorkspaceOwner, from = 0): Promise<TimelineText | null> {
    const log = this.#logs.get(ownerHash(owner));
    if (log === undefined || log.pieces.length === 0) return null;
    let { first } = log;
    const kept = log.pieces.filter((piece) => {
      if (first + piece.byteLength > from) return true;
      first += piece.byteLength;
      return false;
    });
    return { first, bytes: Buffer.concat(kept), isWhole: log.isWhole };
  }

  async end(owner: WorkspaceOwner): Promise<number> {
    const log = this.#logs.get(ownerHash(owner));
    return log === undefined ? 0 : log.first + sizeOf(log);
  }

  async purge(owner: WorkspaceOwner, purge: TimelinePurge): Promise<void> {
    const key = ownerHash(owner);
    this.#bytes -= sizeOf(this.#logs.get(key));
    this.#logs.delete(key);
    this.#logs.set(key, { first: 0, isWhole: true, pieces: [], purge });
  }

  async sweep(): Promise<void> {}

  async close(): Promise<void> {}

  #dropFrom(log: Log): void {
    for (let dropped = 0; dropped < TIMELINE_PIECE_BYTES && log.pieces.length > 1; ) {
      const bytes = log.pieces.shift()?.byteLength ?? 0;
      dropped += bytes;
      log.first += bytes;
      this.#bytes -= bytes;
    }
    log.isWhole = false;
  }

  #forgetOldest(): void {
    for (const [key, log] of this.#logs) {
      this.#logs.delete(key);
      this.#bytes -= sizeOf(log);
      return;
    }
  }
}

function sizeOf(log: Log | undefined): number {
  return (log?.pieces ?? []).reduce((sum, { byteLength }) => sum + byteLength, 0);
}
