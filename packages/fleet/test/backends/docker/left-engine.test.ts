/** The engine of the tests, after a run that was killed with all its processes: the next run has a working one. */

import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { kill, remainsOf } from "../../../../../scripts/docker-test-engine.mjs";

const SCRIPT = fileURLToPath(new URL("../../../../../scripts/docker-test-engine.mjs", import.meta.url));
const NAME = "-left";
const PLACE = `/tmp/sandlot-docker-${process.getuid?.() ?? 0}${NAME}`;
const env = { ...process.env, SANDLOT_TEST_ENGINE: NAME };

it("does not trip over what a killed run has left", { timeout: 180_000 }, async (context) => {
  if (process.getuid?.() !== 0) return context.skip("a private Docker engine takes root");
  const held = spawn(process.execPath, [SCRIPT, "run", "--", "sh", "-c", "echo held; sleep 300"], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  await new Promise((resolve) => held.stdout.once("data", resolve));
  const engine = Number(readFileSync(join(PLACE, "dockerd.pid"), "utf8"));
  process.kill(-(held.pid ?? 0), "SIGKILL");
  process.kill(engine, "SIGKILL");
  for (const pid of remainsOf(PLACE)) kill(pid);
  await expect.poll(() => remainsOf(PLACE)).toEqual([]);
  // By then another process may have the pid, which an engine mistakes for another engine.
  writeFileSync(join(PLACE, "dockerd.pid"), String(process.pid));

  const next = spawnSync(
    process.execPath,
    [SCRIPT, "run", "--", "docker", "--host", `unix://${PLACE}/docker.sock`, "ps"],
    {
      env,
      encoding: "utf8",
    },
  );
  expect(next, next.stderr).toMatchObject({ status: 0, stdout: expect.stringContaining("CONTAINER ID") });
  expect(existsSync(PLACE)).toBe(false);
});
