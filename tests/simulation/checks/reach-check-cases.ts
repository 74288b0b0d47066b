/** Faults for the checks of several engines, of which `one` reaches the first and `other` the second. */

import { type SandboxId, SandlotError } from "@sandlot/contract";
import { type Bench, BOX, ENGINE, FAR } from "./check-harness.ts";
import type { Invariant } from "./invariants.ts";

const SECOND = "second" as SandboxId;

export const REACH_DEEDS: Partial<Record<Invariant, (bench: Bench) => void>> = {
  "engine-limit": (b) => {
    for (const name of ["1", "2"])
      b.has({ sandboxId: name as SandboxId, state: "creating", actor: b.one.id, user: null, thread: null });
  },
  "record-names-its-engine": (b) => {
    b.has({ engine: FAR });
  },
  "other-engines-untouched": (b) => {
    b.has();
    b.stop("unheld", "evicted", b.other);
  },
  "thread-stays-with-its-engine": (b) => {
    b.has();
    b.step(b.one, "remove", [{}], (tables) => tables.deleteRecord(BOX));
    b.has({ sandboxId: SECOND, engine: FAR, state: "creating", actor: b.other.id }, b.other);
  },
  "engine-knows-what-it-is-asked": (b) => {
    const { ref } = b.object();
    b.engine.refUsed(b.other, ref, "probe");
  },
  "elsewhere-is-true": (b) => {
    b.has();
    const error = new SandlotError("engine_unreachable", { engine: ENGINE, retryAfterMs: 1 });
    b.at(10).lease.refused(error, { ...b.asked({ at: 5 }), instance: b.other }, null);
  },
  "recovery-is-of-one-engine": (b) => {
    b.has();
    b.truth.recoveredAt.set(ENGINE, 0);
    const error = new SandlotError("store_recovering", { epoch: "epoch", retryAfterMs: 1 });
    b.at(10).lease.refused(error, b.asked({ at: 5 }), null);
  },
};
