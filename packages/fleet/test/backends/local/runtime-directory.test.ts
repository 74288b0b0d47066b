/** The directory that every sandbox mounts, as it is made. */

import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { sandboxdFiles } from "@sandlot/sandboxd";
import { expect, it, onTestFinished } from "vitest";
import { makeRuntimeDirectory } from "../../../src/backends/local/runtime-directory.ts";

it("is made beside what killed processes have left half made, which goes when it is old", async () => {
  const parent = mkdtempSync(join(tmpdir(), "sl-runtime-"));
  onTestFinished(() => rmSync(parent, { recursive: true, force: true }));
  const [old, recent] = ["runtime-0123456789.17~", "runtime-0123456789.18~"];
  for (const name of [old, recent]) {
    mkdirSync(join(parent, name));
    writeFileSync(join(parent, name, "loader"), "");
  }
  utimesSync(join(parent, old), 1, 1);
  const { path } = await makeRuntimeDirectory(parent, process.execPath, sandboxdFiles());
  expect(readdirSync(parent).sort()).toEqual([basename(path), recent].sort());
});
