/** A few sequences of the model; `npm run checkpoints:model -- --runs 5000` runs many, in two processes at once. */

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "vitest";
import { runSequences } from "./model.ts";

test("random sequences agree with the model", async () => {
  // What is tested is not the disk.
  const root = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "sandlot-model-"));
  try {
    await runSequences(root, 1, 15, "t");
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
