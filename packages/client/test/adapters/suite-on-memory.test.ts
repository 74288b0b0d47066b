/** The suites of tools and sandboxes on the memory backend. */

import { describeEveryAdapter } from "./every-adapter.ts";
import { ownScenes } from "./scenes.ts";

describeEveryAdapter(ownScenes("memory", "memory"));
