/** `npm start` builds the programs that it serves and nothing else; types and declarations are for `npm run build`. */

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, it, onTestFinished } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const FILES = ["package.json", "package-lock.json", "tsconfig.json", "tsconfig.base.json", "scripts", "packages"];

it("builds the programs, and knows that the declarations are missing", async () => {
  const checkout = mkdtempSync(join(tmpdir(), "sandlot-build é "));
  onTestFinished(() => rmSync(checkout, { recursive: true, force: true }));
  const isWanted = (path: string) => !/\/(dist|test|node_modules)$/.test(path);
  for (const name of FILES) cpSync(join(ROOT, name), join(checkout, name), { recursive: true, filter: isWanted });
  symlinkSync(join(ROOT, "node_modules"), join(checkout, "node_modules"));
  const has = (path: string) => existsSync(join(checkout, "packages", path));
  const [program, declaration] = ["fleet/dist/bundle/programs/cli/main.js", "contract/dist/index.d.ts"];
  const bootstrap = () => {
    const args = [join(checkout, "scripts/bootstrap.mjs"), "--for", "start"];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect([status, status === 0 ? "" : stderr]).toEqual([0, ""]);
    return stderr;
  };
  expect(bootstrap()).toContain("building");
  expect([has("sandboxd/dist/sandboxd.cjs"), has(program), has(declaration)]).toEqual([true, true, false]);
  expect(bootstrap()).toBe("");
  const { isBuilt } = await import(pathToFileURL(join(checkout, "scripts/build.mjs")).href);
  expect([isBuilt({ withTypes: false }), isBuilt()]).toEqual([true, false]);
});
