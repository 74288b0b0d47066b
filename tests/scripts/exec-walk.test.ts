/** `npm run exec-walk`: how many files one exec passes in a gateway's process. */

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const SCRIPT = join(import.meta.dirname, "../../scripts/exec-walk.ts");

test("prints the files of an exec, within its limit", () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--conditions=sandlot-source", SCRIPT], {
    encoding: "utf8",
  });
  expect(status, stdout + stderr).toBe(0);
  const files = stdout.split("\n").filter((line) => line.startsWith("packages/"));
  expect(files).toContain("packages/fleet/src/gateway/routes/exec.ts");
  expect(files).toContain("packages/fleet/src/sandboxd/wire.ts");
  expect(stdout).toContain(`exec walk: ${files.length} files, limit `);
});
