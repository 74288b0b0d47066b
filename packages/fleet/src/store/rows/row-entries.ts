/**
 * Shared entries as rows. They are written by the same kind of step as everything else: a row that is not the one the
 * caller knows makes the step answer `changed`, and a row that changed meanwhile makes it run again.
 *
 * Every write relies on the transfer mark. A key that was revoked after an export would otherwise work again at the new
 * store.
 */

import { SandlotError } from "@sandlot/contract";
import { checkEntry, ENTRIES_MAX, type PutAnswer, type SharedEntries, type SharedEntry } from "../entries.ts";
import { importRefusal } from "../transactions/transfer.ts";
import type { ImportClaim } from "../transfer/store-transfer.ts";
import type { RowView } from "./row-view.ts";

/** Runs a step over rows as one commit. */
type RunStep = <T>(operation: string, access: "read" | "write", step: (view: RowView) => T) => Promise<T>;

export class RowEntries implements SharedEntries {
  readonly #run: RunStep;

  constructor(run: RunStep) {
    this.#run = run;
  }

  get(name: string): Promise<SharedEntry | null> {
    return this.#run("getEntry", "read", (view) => view.entry(name));
  }

  list(prefix: string): Promise<readonly SharedEntry[]> {
    return this.#run("listEntries", "read", (view) => view.entries(prefix));
  }

  async put(name: string, body: string, expected: number | null, claim?: ImportClaim): Promise<PutAnswer> {
    checkEntry(name, body);
    return this.#run("putEntry", "write", (view): PutAnswer => {
      const refusal = claim === undefined ? null : importRefusal(view, claim);
      if (refusal !== null) return refusal;
      if (claim === undefined) checkUnmarked(view);
      const present = view.entry(name);
      if ((present?.seq ?? null) !== expected) return { kind: "changed" };
      if (present === null && view.entries("").length >= ENTRIES_MAX) return { kind: "full", max: ENTRIES_MAX };
      const answer = { kind: "put" as const, seq: 0 };
      view.putEntry(name, body);
      view.onCommitted = (seq) => {
        answer.seq = seq;
      };
      return answer;
    });
  }

  delete(name: string, expected: number): Promise<boolean> {
    return this.#run("deleteEntry", "write", (view) => {
      checkUnmarked(view);
      if (view.entry(name)?.seq !== expected) return false;
      view.putEntry(name, null);
      return true;
    });
  }
}

function checkUnmarked(view: RowView): void {
  const mark = view.transfer();
  if (mark !== null) throw new SandlotError("store_moved", { state: mark.state, since: mark.since });
}
