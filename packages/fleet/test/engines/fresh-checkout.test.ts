/**
 * The install of `npm start` in a fresh checkout, with the real npm: the served packages and nothing else. Packages of
 * the tests, types and declarations stay out.
 */

import { execFile, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { freshCheckout } from "../../../../tests/scripts/fresh-checkout.ts";

const run = promisify(execFile);
/** A real install on a busy machine. */
const INSTALL_MS = 280_000;
/** The served packages may grow to this. Node itself is 189 MB of it; the dashboard's pages are built from 50 packages. */
const SERVED_MAX = { packages: 200, megabytes: 380 };

it("installs and builds what npm start serves, and nothing of the tests", { timeout: INSTALL_MS }, async () => {
  const checkout = freshCheckout();
  const has = (path: string) => existsSync(join(checkout, path));
  const bootstrap = async () => {
    const args = [join(checkout, "scripts/bootstrap.mjs"), "--for", "start"];
    const env = { ...process.env, SANDLOT_NO_SYSTEM_PACKAGES: "1" };
    return (await run(process.execPath, args, { env, timeout: INSTALL_MS })).stderr;
  };
  const [program, declaration] = ["fleet/dist/bundle/programs/cli/main.js", "contract/dist/index.d.ts"];
  const said = await bootstrap();
  expect(said).toContain("building");
  expect(Number(/(\d+) packages installed/.exec(said)?.[1])).toBeLessThanOrEqual(SERVED_MAX.packages);
  const size = spawnSync("du", ["-sm", join(checkout, "node_modules")], { encoding: "utf8" }).stdout;
  expect(Number.parseInt(size, 10)).toBeLessThanOrEqual(SERVED_MAX.megabytes);
  const ofTests = ["vitest", "typescript", "@biomejs/biome", "@mastra/core", "officeparser"];
  expect(ofTests.filter((name) => has(`node_modules/${name}`))).toEqual([]);
  const outputs = [`packages/sandboxd/dist/sandboxd.cjs`, `packages/${program}`, `packages/${declaration}`];
  expect(outputs.map(has)).toEqual([true, true, false]);
  expect(await bootstrap()).toBe("");
  const { isBuilt } = await import(pathToFileURL(join(checkout, "scripts/build.mjs")).href);
  expect([isBuilt({ withTypes: false }), isBuilt()]).toEqual([true, false]);
  const launcher = join(checkout, "packages/fleet/bin/sandlot.mjs");
  const doctor = spawnSync(process.execPath, [launcher, "--version"], { encoding: "utf8" });
  expect([doctor.status, doctor.stderr, doctor.stdout]).toEqual([0, "", expect.stringMatching(/^\d+\.\d+\.\d+\n$/)]);
});
