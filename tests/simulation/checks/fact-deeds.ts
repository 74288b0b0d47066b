/**
 * Wrong deeds for the checks of what is told and what is left, and of who is evicted; see `deeds.ts`.
 */

import type { FleetEvent, SandboxId } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import { EPOCH_MS } from "../process/host.ts";
import { type Bench, BOX, GENERATION } from "./bench.ts";
import type { Invariant } from "./invariants.ts";

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
    b.at(10_000).has({ ref });
  },
  "queue-is-bounded": (b) => {
    Object.assign(b.settings.limits, { onFull: "wait", queueMax: 1 });
    b.store.admission.told(b.one, { type: "acquire-queued", user: "ada", queued: 2 } as unknown as FleetEvent);
  },
  "users-take-turns": (b) => {
    b.store.admission.told(b.one, { type: "acquire-queued", user: "ada", queued: 1 } as unknown as FleetEvent);
    for (const user of ["bob", "bob", "ada"]) {
      const step = { by: b.one, method: "reserve", args: [{ key: { user } }], sentAt: 1, skewMs: 0 };
      b.store.admission.answered(step, { kind: "reserved" });
    }
  },
  "idle-watches-nothing": (b) => b.facts.idle(b.one, 1),
  "anonymous-leaves-nothing": (b) => {
    b.ledger.homes.set("ada/~1234", { owner: "ada/~1234", tokens: new Set() });
    b.facts.checkAnonymous();
  },
};
