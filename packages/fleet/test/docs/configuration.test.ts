/** docs/configuration.md matches the schema of configurations. */

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "./documents.ts";

test("docs/configuration.md says what the schema says", () => {
  const script = join(ROOT, "scripts", "generate-config-doc.ts");
  const { status, stderr } = spawnSync(process.execPath, ["--conditions=sandlot-source", script, "--check"], {
    encoding: "utf8",
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});
