/** The command that an error names for a missing package fixes it: it installs where this package looks. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it, onTestFinished } from "vitest";
import { installCommand, missingPeer } from "../src/optional-peer.ts";
import { installation } from "../src/package-files.ts";

const CHECKOUT = fileURLToPath(new URL("../../..", import.meta.url)).replace(/\/$/, "");

function place(name = "plain"): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "sl-peer-")));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  mkdirSync(join(root, name));
  return join(root, name);
}

/** The entries that npm puts below a `node_modules`. */
function put(modules: string, name: string): string {
  mkdirSync(join(modules, name), { recursive: true });
  writeFileSync(join(modules, name, "package.json"), JSON.stringify({ name, version: "5.0.0", main: "index.js" }));
  writeFileSync(join(modules, name, "index.js"), "");
  return join(modules, name);
}

const finds = (root: string) => createRequire(join(root, "dist.js")).resolve("dockerode");

it("installs everything in a checkout, whose lockfile has the package", () => {
  // A shell reads the directory as one word, wherever the checkout lies.
  const { install } = missingPeer(["dockerode"], "a test").details as { install: string };
  const words = execFileSync("sh", ["-c", install.replace(/^npm/, "printf '%s\\n'")], { encoding: "utf8" }).split("\n");
  expect(words).toEqual(["ci", "--prefix", CHECKOUT, ""]);
  expect(existsSync(join(CHECKOUT, "package-lock.json"))).toBe(true);
  expect(finds(CHECKOUT)).toContain("dockerode");
});

it.each(["node_modules", "node_modules/.pnpm/sandlot@0.1.0/node_modules"])("installs in the project: %s", (modules) => {
  const project = place("it's a project");
  writeFileSync(join(project, "package.json"), "{}");
  const root = put(join(project, modules), "sandlot");
  const command = installCommand(["dockerode"], installation(root));
  expect(command).toBe(`npm install dockerode@5 --prefix '${project.replace("'", "'\\''")}'`);
  expect(() => finds(root)).toThrow("Cannot find module");
  put(join(project, "node_modules"), "dockerode");
  expect(finds(root)).toBe(join(project, "node_modules/dockerode/index.js"));
});

it("installs globally beside a global installation", () => {
  const prefix = place("lib");
  const root = put(join(prefix, "node_modules"), "sandlot");
  const command = installCommand(["officeparser", "read-excel-file"], installation(root));
  expect(command).toMatch(/^npm install officeparser@\d+ read-excel-file@\d+ --global$/);
  put(join(prefix, "node_modules"), "dockerode");
  expect(finds(root)).toBe(join(prefix, "node_modules/dockerode/index.js"));
});
