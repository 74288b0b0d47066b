/**
 * Debian's packages: what is installed, with which commands, is said before it happens, and can be declined. With stand-ins for
 * `apt-get`, `dpkg` and `npm`, which write down how they were called.
 */

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, it, onTestFinished } from "vitest";

const SCRIPTS = fileURLToPath(new URL("../../scripts/", import.meta.url));
const INSTALL = "apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends";

/** Runs Node with a PATH on which only the stand-ins are. `failures` is how often `apt-get install` fails first. */
function run(args: readonly string[], { failures = 0, environment = {} as NodeJS.ProcessEnv } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "sandlot-apt-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const [log, left] = [join(folder, "log"), join(folder, "left")];
  writeFileSync(left, "x".repeat(failures));
  const script = `#!/bin/sh
echo "$(/usr/bin/basename "$0") $*" >> "${log}"
case "$*" in *install*) ;; *) exit 0 ;; esac
if [ -s "${left}" ]; then read -r all < "${left}" || true; printf %s "\${all#x}" > "${left}"; exit 100; fi
`;
  for (const name of ["apt-get", "dpkg", "npm"]) writeFileSync(join(folder, name), script, { mode: 0o755 });
  const { SANDLOT_NO_SYSTEM_PACKAGES: _, ...inherited } = process.env;
  const env = { ...inherited, PATH: folder, ...environment };
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { env, encoding: "utf8" });
  const called = existsSync(log) ? readFileSync(log, "utf8").trimEnd().split("\n") : [];
  return { status, stdout, stderr, called };
}

const installPackages = (...names: string[]) => [
  "--input-type=module",
  "-e",
  `import { installPackages } from ${JSON.stringify(pathToFileURL(join(SCRIPTS, "debian-packages.mjs")).href)};
   console.log(installPackages(${JSON.stringify(names)}, { suite: "some-backports" }));`,
];

it("prints the command, runs it, and answers whether it worked", () => {
  const { stdout, stderr, called } = run(installPackages("one", "two"));
  expect([stdout, called]).toEqual(["true\n", [`${INSTALL} -t some-backports one two`]]);
  expect(stderr).toBe(`[sandlot] running: ${called[0]}\n`);
});

it("puts right what usually stands in the way, once, and prints that, too", () => {
  const { stdout, stderr, called } = run(installPackages("one"), { failures: 1 });
  const install = `${INSTALL} -t some-backports one`;
  const repairs = ["dpkg --configure -a --force-confold", "apt-get -o DPkg::Lock::Timeout=300 update"];
  expect([stdout, called]).toEqual(["true\n", [install, ...repairs, install]]);
  expect(stderr).toBe(called.map((command) => `[sandlot] running: ${command}\n`).join(""));
  expect(run(installPackages("one"), { failures: 2 }).stdout).toBe("false\n");
});

it("runs nothing where the machine's packages are to be left alone", () => {
  const declined = run(installPackages("one"), { environment: { SANDLOT_NO_SYSTEM_PACKAGES: "1" } });
  expect([declined.stdout, declined.called]).toEqual(["false\n", []]);
  expect(run(installPackages("one"), { environment: { SANDLOT_NO_SYSTEM_PACKAGES: "0" } }).called).toHaveLength(1);
});

it("is what `npm start` says and does about bubblewrap", (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root installs packages");
  const bootstrap = [join(emptyCheckout(), "scripts", "bootstrap.mjs"), "--no-build", "--for", "start"];
  const { stderr, called } = run(bootstrap);
  expect(called[0]).toBe(`${INSTALL} bubblewrap`);
  const lines = stderr.split("\n");
  expect(lines[0]).toMatch(/missing system package bubblewrap, needed by the local backend/);
  expect(lines[1]).toBe("[sandlot] installing bubblewrap from Debian; SANDLOT_NO_SYSTEM_PACKAGES=1 goes on without");
  expect(lines[2]).toBe(`[sandlot] running: ${INSTALL} bubblewrap`);
  const declined = run(bootstrap, { environment: { SANDLOT_NO_SYSTEM_PACKAGES: "1" } });
  expect(declined.called).not.toContain(`${INSTALL} bubblewrap`);
  expect(declined.stderr).toContain("going on without; to install: sudo apt-get install -y bubblewrap");
});

/** The scripts and manifests alone: what they would install is not there, and nothing of this checkout is touched. */
function emptyCheckout(): string {
  const folder = mkdtempSync(join(tmpdir(), "sandlot-checkout-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const manifests = ["contract", "sandboxd", "client", "fleet"].map((name) => `packages/${name}/package.json`);
  for (const path of ["scripts", "package.json", "package-lock.json", ...manifests])
    cpSync(join(SCRIPTS, "..", path), join(folder, path), { recursive: true });
  return folder;
}
