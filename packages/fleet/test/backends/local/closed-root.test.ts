/**
 * The fleet's own directory is closed to other accounts of the host, also below an open home: a sandbox sets the modes
 * of its own files, and so decides who may read or run them.
 */

import { spawnSync } from "node:child_process";
import { chmodSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { blueprint, isRoot, openHarness, removeDaemon } from "./local-harness.ts";

const STRANGER = { uid: 65_534, gid: 65_534 };

afterAll(removeDaemon);

test.runIf(isRoot)("another account of the host does not reach a workspace that its sandbox has opened", async () => {
  const harness = await openHarness();
  const root = join(harness.home, harness.fleetId);
  // As an operator may have made it, with the files that an earlier release left in it.
  chmodSync(harness.home, 0o755);
  chmodSync(root, 0o711);
  const backend = await harness.open();
  const stage = new BackendStage({ ...harness, backend }, blueprint, expect);
  try {
    expect(statSync(root).mode & 0o777).toBe(0o700);
    const key = stage.newKey();
    const { sandbox } = await stage.attach((await stage.make(key)).target);
    const made = await sandbox.exec(
      "chmod 777 /mnt/user-data /mnt/user-data/workspace && cp /bin/true program && chmod 755 program && ./program",
      { cwd: "/mnt/user-data/workspace" },
    );
    expect(made, made.stderr).toMatchObject({ exitCode: 0 });
    const program = join(root, "homes", threadKeyOf(key.user, key.thread), "user-data/workspace/program");
    expect(spawnSync(program).status).toBe(0);
    const tried = spawnSync(program, { cwd: "/", ...STRANGER });
    expect(tried.error).toMatchObject({ code: "EACCES" });
  } finally {
    await stage.clear();
    await harness.dispose();
  }
});
