/** The suite `stores`: the cost of the fleet's bookkeeping on each store, without any engine. */

import { acquireReleaseHeld } from "./bookkeeping/acquire-release-held.ts";
import { parkedLeasedParked } from "./bookkeeping/parked-leased-parked.ts";
import { atRest } from "./stores/at-rest.ts";
import { parkedOnServer } from "./stores/parked-on-server.ts";
import { BENCH_SERVERS } from "./stores/servers.ts";
import { waiter } from "./stores/waiter.ts";
import type { Suite } from "./suite.ts";

export const suite: Suite = {
  about: [
    "Memory and SQLite as in the suite `core`. PostgreSQL and Redis are real servers on this machine, reached over loopback, that",
    "write every commit to disk. The baselines are the bare driver on the same server: one row, no reads, no checks.",
    "The backend is instant and in memory. Client and server share the processors, so figures are ratios in one run.",
  ].join("\n"),
  async *run(options) {
    yield* acquireReleaseHeld(options);
    yield* parkedLeasedParked(options);
    for (const open of BENCH_SERVERS) {
      await using server = await open();
      yield* parkedOnServer(server, options);
      yield* waiter(server, options);
      yield* atRest(server, options);
    }
  },
};
