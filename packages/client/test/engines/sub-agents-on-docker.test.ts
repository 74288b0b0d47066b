/** Sub-agents at work in one thread of a Docker engine, while its container is killed. */

import { test } from "vitest";
import { describeOnEngine } from "../../../fleet/test/backends/docker/on-engine.ts";
import { letThemWork, WORKING_MS } from "../tools/sub-agents.ts";

describeOnEngine("sub-agents on Docker", (_, engine) => {
  test("edit one file while it is killed", { timeout: WORKING_MS }, () => letThemWork({ docker: engine }, 2));
});
