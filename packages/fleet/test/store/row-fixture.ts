/** A row server in memory that a test can disturb, and a store on it. */

import { SandlotError } from "@sandlot/contract";
import { epochAfter } from "../../src/store/rows/epoch-order.ts";
import { MemoryRowServer } from "../../src/store/rows/memory-row-server.ts";
import { MemoryRows } from "../../src/store/rows/memory-rows.ts";
import type { Commit, CommitAnswer } from "../../src/store/rows/row-server.ts";
import { RowStore } from "../../src/store/rows/row-store.ts";
import { systemWorld } from "../../src/world/system-world.ts";

type CommitCall = (commit: Commit) => Promise<CommitAnswer>;

class DisturbedServer extends MemoryRowServer {
  /** Every call so far, by name. */
  readonly calls: string[] = [];
  readonly commits: Commit[] = [];
  /** Takes the place of a commit. `proceed` makes it. */
  onCommit: ((commit: Commit, proceed: CommitCall, signal: AbortSignal) => Promise<CommitAnswer>) | null = null;

  override commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    this.calls.push("commit");
    this.commits.push(commit);
    const proceed: CommitCall = (one) => super.commit(one, signal);
    return this.onCommit === null ? proceed(commit) : this.onCommit(commit, proceed, signal);
  }

  override read(...args: Parameters<MemoryRowServer["read"]>) {
    this.calls.push("read");
    return super.read(...args);
  }

  override scan(...args: Parameters<MemoryRowServer["scan"]>) {
    this.calls.push("scan");
    return super.scan(...args);
  }
}

export function newRows() {
  const world = systemWorld();
  const clock = { offsetMs: 0 };
  const rows = new MemoryRows(
    () => world.wallMs() + clock.offsetMs,
    () => epochAfter(null, world.wallMs(), world.randomHex(16)),
  );
  const open = (timeoutMs = 2_000) => {
    const server = new DisturbedServer(rows);
    return { server, store: new RowStore({ server, world, timeoutMs }) };
  };
  return { rows, clock, open };
}

export function lostAnswer(): SandlotError {
  return new SandlotError("store_unavailable", { operation: "commit", problem: "cut", retryAfterMs: 1 });
}

/** Writes rows past every store. */
export function writeRaw(rows: MemoryRows, key: string, change: (body: string | null) => string | null): void {
  const { seq, body } = rows.read([key]).rows[0] ?? { seq: 0, body: null };
  const answer = rows.commit({
    ...{ id: `raw-${key}-${seq}-${rawWrites++}`, epoch: rows.epoch, seen: [], seenAt: rows.now() },
    ...{ notAfter: rows.now() + 60_000, reads: new Map([[key, seq]]), writes: new Map([[key, change(body)]]) },
    ...{ topics: [], isDurable: false },
  });
  if (answer.kind !== "committed") throw new Error(`writing ${key} was answered with ${answer.kind}`);
}

let rawWrites = 0;
