/** Sub-agents at work in one thread, while its sandbox is killed: in this process, and with clients of a gateway. */

import { spawnSync } from "node:child_process";
import { test } from "vitest";
import { letThemWork, WORKING_MS } from "./sub-agents.ts";

test("on memory", { timeout: WORKING_MS }, () => letThemWork("memory"));

test("with four clients of a gateway, which share nothing", { timeout: WORKING_MS }, () => letThemWork("gateway"));

test("on local sandboxes", { timeout: WORKING_MS }, async (context) => {
  if (spawnSync("bwrap", ["--version"]).status !== 0) context.skip("bubblewrap is not installed");
  await letThemWork("local");
});
