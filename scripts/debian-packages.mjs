/**
 * Installs Debian packages, if this process is root and there is `apt-get`. Plain JavaScript for Node 20 and up,
 * because it runs before anything is installed.
 *
 * Every command is printed before it runs. `SANDLOT_NO_SYSTEM_PACKAGES=1` prevents all of them.
 */
import { spawnSync } from "node:child_process";

/** Another process, such as another test, may be installing at this moment. */
const LOCK_TIMEOUT_S = 300;

/** Whether system packages must not be installed. */
export function leavesSystemPackagesAlone() {
  return !["", "0", "false", undefined].includes(process.env.SANDLOT_NO_SYSTEM_PACKAGES);
}

/**
 * Whether they are installed now. The usual obstacles are repaired, once: old or missing package lists, and a killed
 * installation, after which nothing can be installed.
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
