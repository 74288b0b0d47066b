/**
 * Debian's packages, where we are root and there is `apt-get`. Plain JavaScript for Node 20 and up, because it runs before
 * anything is installed.
 *
 * Every command is printed before it runs. `SANDLOT_NO_SYSTEM_PACKAGES=1` keeps all of them from running.
 */
import { spawnSync } from "node:child_process";

/** Another process may be installing at this moment, such as another test. */
const LOCK_TIMEOUT_S = 300;

/** Whether this machine's own packages are to be left alone. */
export function leavesSystemPackagesAlone() {
  return !["", "0", "false", undefined].includes(process.env.SANDLOT_NO_SYSTEM_PACKAGES);
}

/**
 * Whether they are installed now. What usually stands in the way is put right, once: package lists that are old or absent, and an
 * installation that was killed, after which nothing can be installed.
 * @param {readonly string[]} names
 * @param {{ suite?: string, stdio?: "inherit" | "ignore" }} options
 */
export function installPackages(names, { suite, stdio = "ignore" } = {}) {
  if (leavesSystemPackagesAlone()) return false;
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const run = (program, ...args) => {
    console.error(`[sandlot] running: ${[program, ...args].join(" ")}`);
    return spawnSync(program, args, { stdio, env }).status === 0;
  };
  const aptGet = (...args) => run("apt-get", "-o", `DPkg::Lock::Timeout=${LOCK_TIMEOUT_S}`, ...args);
  const from = suite === undefined ? [] : ["-t", suite];
  const install = () => aptGet("install", "-y", "--no-install-recommends", ...from, ...names);
  if (install()) return true;
  run("dpkg", "--configure", "-a", "--force-confold");
  aptGet("update");
  return install();
}
