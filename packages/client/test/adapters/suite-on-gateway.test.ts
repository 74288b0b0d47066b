/** The suites of tools and sandboxes through the client of a gateway, in place of a fleet. */

import { describeEveryAdapter } from "./every-adapter.ts";
import { sharedScenes } from "./scenes.ts";

describeEveryAdapter(sharedScenes("a gateway", () => "gateway"));
