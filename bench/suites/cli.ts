/** The suite `cli`: the cost of the built command line, against bare Node and `docker exec`, and after a restart. */

import { execExisting } from "./cli/exec-existing.ts";
import { gatewayRestart } from "./cli/gateway-restart.ts";
import { openCliStage } from "./cli/stage.ts";
import { startCost } from "./cli/start-cost.ts";
import type { Suite } from "./suite.ts";

export const suite: Suite = {
  about: [
    "The command line as `npm run build` makes it, each command a process of its own, with what Node has compiled kept from earlier",
    "starts. A limit in seconds is told as a share of it: 1 is the limit. Needs Linux with bubblewrap, and for `docker exec` an engine.",
  ].join("\n"),
  async *run(options) {
    await using stage = await openCliStage();
    yield* startCost(stage, options);
    yield* execExisting(stage, options);
    yield* gatewayRestart(stage, options);
  },
};
