/** The suites of tools and sandboxes on a Docker engine: the tests' own, with one fleet that keeps a blank ready. */

import { describeOnEngine } from "../../../fleet/test/backends/docker/on-engine.ts";
import { describeEveryAdapter } from "../adapters/every-adapter.ts";
import { sharedScenes } from "../adapters/scenes.ts";

describeOnEngine("on Docker", (_, engine) => describeEveryAdapter(sharedScenes("Docker", () => ({ docker: engine }))));
