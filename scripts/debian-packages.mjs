/**
 * Debian's packages, where we are root and there is `apt-get`. Plain JavaScript for Node 20 and up, because it runs before
 * anything is installed.
 */
import { spawnSync } from "node:child_process";

/** Somebody else may be installing at this moment, such as another test. */
const LOCK_TIMEOUT_S = 300;

/**
 * Whether they are installed now. What usually stands in the way is put right, once: package lists that are old or absent, and an
 * installation that was killed, after which nothing can be installed.
 * @param {readonly string[]} names
 * @param {{ suite?: string, stdio?: "inherit" | "ignore" }} options
 */
export function installPackages(names, { suite, stdio = "ignore" } = {}) {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const run = (program, ...args) => spawnSync(program, args, { stdio, env }).status === 0;
  const aptGet = (...args) => run("apt-get", "-o", `DPkg::Lock::Timeout=${LOCK_TIMEOUT_S}`, ...args);
  const from = suite === undefined ? [] : ["-t", suite];
  const install = () => aptGet("install", "-y", "--no-install-recommends", ...from, ...names);
  if (install()) return true;
  run("dpkg", "--configure", "-a", "--force-confold");
  aptGet("update");
  return install();
}
