import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

it("docs/errors.md says what the registry says", () => {
  const script = fileURLToPath(new URL("../../../scripts/generate-errors-doc.ts", import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, ["--conditions=sandlot-source", script, "--check"], {
    encoding: "utf8",
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});
