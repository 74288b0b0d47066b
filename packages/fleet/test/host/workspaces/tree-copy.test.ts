/** Copying a workspace whose paths are longer than the copy's may be. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { copyWorkspace } from "../../../src/host/workspaces/tree-copy.ts";

it.each([
  ["too long", 60, "d".repeat(200), /too long to be copied/],
  ["too deep", 200, "d", /more than 128 deep/],
])("says that a tree is %s", async (_, levels, name, problem) => {
  const place = mkdtempSync(join(tmpdir(), "sl-copy-"));
  onTestFinished(() => void execFileSync("rm", ["-rf", place]));
  mkdirSync(join(place, "from"));
  mkdirSync(join(place, "to"));
  const make = `for (let at = 0; at < ${levels}; at++) { require("fs").mkdirSync("${name}"); process.chdir("${name}"); }`;
  execFileSync(process.execPath, ["-e", make], { cwd: join(place, "from") });
  const root = await open(join(place, "from"));
  try {
    const copying = copyWorkspace(root.fd, join(place, "to"), null);
    await expect(copying).rejects.toMatchObject({
      code: "invalid_path",
      details: { problem: expect.stringMatching(problem) },
    });
  } finally {
    await root.close();
  }
});
