/** The suite `core`: the cost of the fleet's own bookkeeping, without any engine. */

import { acquireReleaseHeld } from "./bookkeeping/acquire-release-held.ts";
import { growth } from "./bookkeeping/growth.ts";
import { heapPerRecord } from "./bookkeeping/heap-per-record.ts";
import { parkedLeasedParked } from "./bookkeeping/parked-leased-parked.ts";
import type { Suite } from "./suite.ts";

export const suite: Suite = {
  about: [
    "The fleet is real: assembleFleet, the system's clock, its loops. The backend is instant and in memory, so engines,",
    "daemons, sockets and sandboxes are not in these figures. Housekeeping loops are there but do not come round during",
    "a measurement, so renewals and reaping are not in them either. One process, one instance: no contention.",
  ].join("\n"),
  async *run(options) {
    yield* acquireReleaseHeld(options);
    yield* parkedLeasedParked(options);
    yield* heapPerRecord(options);
    yield* growth(options);
  },
};
