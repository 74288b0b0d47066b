/** The build of `npm start` is enough to serve: the bundles alone, in a checkout where the compiler has never run. */

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it, onTestFinished } from "vitest";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));

/** A checkout with the installed packages of this one and nothing built. */
function bareCheckout(): string {
  const checkout = mkdtempSync(join(tmpdir(), "sl-bare-"));
  onTestFinished(() => rmSync(checkout, { recursive: true, force: true }));
  const isSource = (path: string) => !["node_modules", "dist", "test"].includes(basename(path));
  cpSync(join(ROOT, "packages"), join(checkout, "packages"), { recursive: true, filter: isSource });
  cpSync(join(ROOT, "tsconfig.base.json"), join(checkout, "tsconfig.base.json"));
  linkAll(join(ROOT, "node_modules"), join(checkout, "node_modules"));
  for (const name of readdirSync(join(checkout, "packages"))) {
    const installed = join(ROOT, "packages", name, "node_modules");
    if (existsSync(installed)) linkAll(installed, join(checkout, "packages", name, "node_modules"));
  }
  return checkout;
}

/** Our packages link to their neighbours, so these links are made anew. */
function linkAll(from: string, to: string): void {
  mkdirSync(to);
  for (const name of readdirSync(from)) if (name !== "@sandlot") symlinkSync(join(from, name), join(to, name));
  if (!existsSync(join(from, "@sandlot"))) return;
  mkdirSync(join(to, "@sandlot"));
  for (const name of readdirSync(join(from, "@sandlot")))
    symlinkSync(`../../packages/${name}`, join(to, "@sandlot", name));
}

it("lists sandboxes", { timeout: 120_000 }, () => {
  const checkout = bareCheckout();
  const home = join(checkout, "home");
  const env = { PATH: process.env.PATH, HOME: home, SANDLOT_HOME: home, XDG_CACHE_HOME: join(checkout, "cache") };
  const run = (...args: readonly string[]) =>
    execFileSync(process.execPath, args, { cwd: checkout, env, encoding: "utf8" });
  for (const name of ["sandboxd", "dashboard", "fleet"]) run(join("packages", name, "bundle.mjs"));
  const program = join("packages", "fleet", "bin", "sandlot.mjs");
  expect(JSON.parse(run(program, "ps", "--json"))).toEqual({ sandboxes: [] });
});
