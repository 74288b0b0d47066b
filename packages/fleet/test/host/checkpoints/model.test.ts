/** A few sequences of the model; `npm run checkpoints:model -- --runs 5000` runs many, in two processes at once. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "vitest";
import { runSequences } from "./model.ts";

test("random sequences agree with the model", async () => {
  const root = mkdtempSync(join(tmpdir(), "sandlot-model-"));
  try {
    await runSequences(root, 1, 15, "t");
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
