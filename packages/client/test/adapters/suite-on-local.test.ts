/** The suites of tools and sandboxes in namespaces of this machine. */

import { spawnSync } from "node:child_process";
import { test } from "vitest";
import { describeEveryAdapter } from "./every-adapter.ts";
import { sharedScenes } from "./scenes.ts";

const isInstalled = spawnSync("bwrap", ["--version"]).status === 0;

if (isInstalled) describeEveryAdapter(sharedScenes("local", () => "local"));
else test("on local sandboxes", (context) => context.skip("bubblewrap is not installed"));
