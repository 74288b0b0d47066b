/**
 * `npm run link` and `npm run unlink`: the command line of this checkout in a folder of the PATH, and removed again.
 */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../../..");
let folder = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "sandlot link "));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function link(...args: string[]) {
  return spawnSync(process.execPath, [join(ROOT, "scripts/link.mjs"), ...args], { encoding: "utf8" });
}

test("a link runs this checkout from any folder, and says when its own is not in the PATH", (context) => {
  if (!existsSync(join(ROOT, "packages/fleet/dist/bundle"))) return context.skip("not built: run npm run build");
  const { status, stdout } = link(folder);
  expect([status, stdout]).toEqual([0, expect.stringContaining(`${folder} is not in your PATH`)]);
  const environment = { ...process.env, PATH: `${folder}:${process.env.PATH}` };
  const said = spawnSync("sh", ["-c", "sandlot --version"], { cwd: "/", env: environment, encoding: "utf8" });
  const { version } = JSON.parse(readFileSync(join(ROOT, "packages/fleet/package.json"), "utf8")) as {
    version: string;
  };
  expect([said.stdout, said.stderr]).toEqual([`${version}\n`, ""]);
  // A second run changes nothing, and the link can be removed.
  expect(link(folder).status).toBe(0);
  expect(link("--remove", folder).status).toBe(0);
  expect(existsSync(join(folder, "sandlot"))).toBe(false);
});

test("another program of that name is left alone", () => {
  writeFileSync(join(folder, "sandlot"), "mine");
  for (const args of [[folder], ["--remove", folder]]) {
    const { status, stderr } = link(...args);
    expect([status, stderr]).toEqual([1, expect.stringContaining("is left alone")]);
  }
  expect(readFileSync(join(folder, "sandlot"), "utf8")).toBe("mine");
});
