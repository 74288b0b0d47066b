/** Copying a workspace: without its home, and when its paths are longer than the copy's may be. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
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

it("leaves the home behind, and no other directory of its name", async () => {
  const place = mkdtempSync(join(tmpdir(), "sl-copy-"));
  onTestFinished(() => void execFileSync("rm", ["-rf", place]));
  for (const folder of [".home", "workspace/.home"]) {
    mkdirSync(join(place, "from", folder), { recursive: true });
    writeFileSync(join(place, "from", folder, "file"), "x");
  }
  mkdirSync(join(place, "to"));
  const root = await open(join(place, "from"));
  try {
    expect(await copyWorkspace(root.fd, join(place, "to"), null)).toMatchObject({ fileCount: 1, skipped: [] });
  } finally {
    await root.close();
  }
  expect(readdirSync(join(place, "to"))).toEqual(["workspace"]);
  expect(readdirSync(join(place, "to/workspace/.home"))).toEqual(["file"]);
});
