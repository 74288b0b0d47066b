/** Standing still while files are counted, against processes that are woken meanwhile. */

import { spawn } from "node:child_process";
import { expect, it, onTestFinished } from "vitest";
import { holdStill } from "../../../../src/backends/local/limits/disk/hold.ts";
import { world } from "../local-harness.ts";

function loop(script: string): number {
  const child = spawn("/bin/sh", ["-c", `while :; do ${script}; done`], { stdio: "ignore" });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child.pid ?? 0;
}

it("says so when a process does not stay still", async () => {
  const writer = loop(":");
  const held = await holdStill(() => [writer], world);
  expect(held).not.toBeNull();
  held?.release();
  loop(`kill -CONT ${writer}`);
  expect(await holdStill(() => [writer], world)).toBeNull();
});
