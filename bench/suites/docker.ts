/** The suite `docker`: the cost of a sandbox in a container against the Engine API used directly. */

import { cachedAcquire } from "./docker/cached-acquire.ts";
import { blankAcquire, coldAcquire } from "./docker/cold-start.ts";
import { execTrue } from "./docker/exec-true.ts";
import { parked } from "./docker/parked.ts";
import { openStage } from "./docker/stage.ts";
import type { Suite } from "./suite.ts";

export const suite: Suite = {
  about: [
    "Real containers on a real engine (a private one where none is named by SANDLOT_TEST_DOCKER_HOST): Sandlot against the",
    "Engine API over its keep-alive socket, in one run, with the same image, limits, hardening and network (none).",
    "Commands are new processes each time.",
  ].join("\n"),
  async *run(options) {
    await using stage = await openStage();
    yield* execTrue(stage, options);
    yield* cachedAcquire(stage, options);
    yield* blankAcquire(stage, options);
    yield* coldAcquire(stage, options);
    yield* parked(stage, options);
  },
};
