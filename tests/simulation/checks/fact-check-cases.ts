/** Faults for the checks of events, leftovers and evictions; see `check-cases.ts`. */

import type { FleetEvent, SandboxId } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import { EPOCH_MS } from "../process/host.ts";
import { type Bench, BOX, GENERATION } from "./check-harness.ts";
import type { Invariant } from "./invariants.ts";

function wait(b: Bench, user: string, ...threads: readonly string[]): void {
  for (const [index, thread] of threads.entries())
    b.store.admission.told(b.one, { type: "acquire-queued", user, thread, queued: index + 1 } as unknown as FleetEvent);
}

function reserve(b: Bench, user: string, thread: string): void {
  const step = { by: b.one, method: "reserve", args: [{ key: { user, thread } }], sentAt: 1, skewMs: 0, turn: 0 };
  b.store.admission.asked(step);
  b.store.admission.answered(step, { kind: "reserved" });
}

export const FACT_DEEDS: Partial<Record<Invariant, (bench: Bench) => void>> = {
  "events-follow-facts": (b) => {
    b.facts.told(b.one, { type: "sandbox-created", sandboxId: BOX } as unknown as FleetEvent);
  },
  "nothing-runs-after-close": (b) => {
    b.one.world.timer(1_000, () => undefined);
    b.facts.closed(b.one, 0);
  },
  "signals-are-let-go": (b) => b.facts.answered(b.one, 1),
  "guessed-ids-end-nothing": (b) => b.facts.guessed(b.one, true),
  "hold-is-taken-again": (b) => {
    b.object();
    b.has();
    b.at(60_000).lease.lost(b.held(), "session-lost");
  },
  "evicted-only-when-needed": (b) => {
    b.has();
    b.at(20_000).stop("unheld", "evicted");
  },
  "longest-parked-goes-first": (b) => {
    const [first, second] = [b.object(), b.object()];
    b.has({ sandboxId: "first" as SandboxId, ref: first.ref, thread: "t2" as SandboxRecord["thread"] });
    b.at(20_000).has({ ref: second.ref, parkedAt: EPOCH_MS + 20_000, generation: GENERATION });
    b.stop("unheld", "evicted");
  },
  "blueprint-is-as-asked": (b) => {
    b.object();
    b.lease.checkBlueprint(b.held(), "other");
  },
  "put-back-is-there": (b) => {
    const { ref } = b.object();
    b.ledger.destroy(ref);
    b.truth.emptiedAt = 5_000;
    b.at(10_000).has({ ref });
  },
  "queue-is-bounded": (b) => {
    Object.assign(b.settings.limits, { onFull: "wait", queueMax: 1 });
    wait(b, "ada", "t1", "t2");
  },
  "queue-is-not-overtaken": (b) => {
    wait(b, "ada", "t1");
    reserve(b, "bob", "t1");
    reserve(b, "ada", "t1");
  },
  "users-take-turns": (b) => {
    wait(b, "bob", "t1", "t2");
    wait(b, "ada", "t1");
    for (const thread of ["t1", "t2"]) reserve(b, "bob", thread);
    reserve(b, "ada", "t1");
  },
  "first-come-first-served": (b) => {
    wait(b, "ada", "t1", "t2");
    for (const thread of ["t2", "t1"]) reserve(b, "ada", thread);
  },
  "idle-watches-nothing": (b) => b.facts.idle(b.one, 1),
  "anonymous-leaves-nothing": (b) => {
    b.ledger.homes.set("ada/~1234", { owner: "ada/~1234", tokens: new Set() });
    b.facts.checkAnonymous();
  },
};
