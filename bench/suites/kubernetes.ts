/** The suite `kubernetes`: the cost of a sandbox in a pod against `kubectl`, on the same cluster in the same run. */

import { execRoundTrip, newThreads } from "./kubernetes/against-kubectl.ts";
import { openStage } from "./kubernetes/stage.ts";
import type { Suite } from "./suite.ts";

export const suite: Suite = {
  about: [
    "Real pods on the cluster that SANDLOT_TEST_CLUSTER names (tests/cluster/README.md): Sandlot against a bare pod by",
    "kubectl, with the same image on the same node. kubectl is one program per step, as at a terminal. Workspaces are on a",
    "shared claim; networkPolicy is external, so no sandbox waits until its policy is enforced.",
  ].join("\n"),
  async *run(options) {
    await using stage = await openStage();
    yield* newThreads(stage, options);
    yield* execRoundTrip(stage, options);
  },
};
