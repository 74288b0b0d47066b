/**
 * The step `cluster` of `npm run test:cluster` and its other sizes: the tests that take a Kubernetes cluster.
 *
 *   startBuild(size)    at the beginning of the suite: compiles the cluster in the background, unless it is cached
 *   clusterStep(size)   its last step: waits for the build, makes the images, starts the cluster, runs the tests, takes it down
 *
 * The sizes: `small` for `npm run test:cluster-small`, `full` for `npm run test:cluster`, `long` for `npm run test:long`.
 *
 * A machine without Go, network or privileges has no cluster. That is reported as `not built`, with the reason, and is
 * the one skip that CI=true allows. The wait for a build has a limit, so that a slow machine does not wait for it.
 */
import { spawn, spawnSync } from "node:child_process";
import { createWriteStream, existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { testImageArchive } from "../../scripts/docker-test-engine.mjs";
import { ROOT, repositoryNode } from "../../scripts/runtime.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const CACHE = process.env.KUBE_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "kube-dev");
const LOG = join(ROOT, ".cache", "cluster-build.log");
const UP_MS = 180_000;
/**
 * What the tests use. Without one of them its tests are skipped, which CI does not allow. `waitMs`: what the step may cost beside
 * its tests, when the build has not ended with the steps before it.
 */
const SIZES = {
  small: { addons: [], hasChart: false, waitMs: 60_000 },
  full: { addons: ["coredns", "netpol", "helm", "gvisor"], hasChart: true, waitMs: 3_600_000 },
  long: { addons: ["coredns", "netpol", "helm", "gvisor", "kwok"], hasChart: true, waitMs: 3_600_000 },
};
/** The program by which an addon is known to be built. */
const PROGRAMS = { gvisor: "runsc" };
/** What the gateway's image is made of. */
const GATEWAY_SOURCES = [
  "packages/fleet/dist",
  "packages/sandboxd/dist",
  "packages/client/dist",
  "packages/contract/dist",
];

let build = null;

/** Why no cluster can be built or run here; `null` where one can. */
function obstacle(size) {
  if (process.platform !== "linux") return "a cluster takes Linux";
  if (process.getuid?.() !== 0) return "a cluster takes root";
  if (process.arch !== "x64") return "the images are made for amd64";
  const has = (program) => spawnSync("sh", ["-c", `command -v ${program}`]).status === 0;
  for (const program of ["iptables", "ip", "openssl", "curl"]) {
    // build.sh installs missing ones where there is a package manager.
    if (!has(program) && !has("apt-get")) return `${program} is missing`;
  }
  if (!isCached(size) && !has("go")) return "there is no Go to compile Kubernetes with";
  return null;
}

function isCached(size) {
  const programs = ["kube", ...SIZES[size].addons.map((addon) => PROGRAMS[addon] ?? addon)];
  return programs.every((name) => existsSync(join(CACHE, "bin", name))) && existsSync(join(CACHE, "deb", ".done"));
}

/** Starts in the background with the lowest claim on the processors: the steps before need them. */
export function startBuild(size) {
  if (build !== null || obstacle(size) !== null) return;
  mkdirSync(join(ROOT, ".cache"), { recursive: true });
  const log = createWriteStream(LOG);
  const { addons } = SIZES[size];
  const parts = ["kube", "deb", "images", ...(addons.length === 0 ? [] : ["addons"])];
  const child = spawn("nice", ["-n", "15", join(HERE, "build.sh"), ...parts], {
    env: { ...process.env, ADDONS: addons.join(" ") },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  yieldToOthers(child.pid);
  child.stdout.pipe(log, { end: false });
  child.stderr.pipe(log, { end: false });
  const stop = () => {
    try {
      process.kill(-child.pid, "SIGTERM");
    } catch {
      // It has ended.
    }
  };
  process.once("exit", stop);
  build = new Promise((resolve) => {
    child.on("error", () => resolve(1));
    child.on("exit", (code) => {
      process.off("exit", stop);
      resolve(code ?? 1);
    });
  });
  build.stop = stop;
}

/**
 * A session of its own is a scheduling group of its own, which Linux gives as much as all tests together, whatever its `nice`. The
 * group has a value of that kind too.
 */
function yieldToOthers(pid) {
  try {
    writeFileSync(`/proc/${pid}/autogroup`, "19");
  } catch {
    // There are no such groups here.
  }
}

/** `runTests(environment)` runs the tests of the project `cluster`, and returns what a step returns. */
export async function clusterStep(size, runTests) {
  const reason = obstacle(size);
  if (reason !== null) return notBuilt(reason);
  startBuild(size);
  const { addons, hasChart, waitMs } = SIZES[size];
  const code = await Promise.race([build, later(waitMs)]);
  if (code === "late") {
    build.stop();
    return notBuilt(`the build did not end in time; ${LOG} has its output, and the next run goes on from there`);
  }
  if (code !== 0) return notBuilt(`the build failed with exit code ${code}; ${LOG} has its output`);
  const image = makeImage() ?? (hasChart ? makeGatewayImage() : null);
  if (image !== null) return notBuilt(image);
  const up = spawnSync(join(HERE, "up.sh"), {
    timeout: UP_MS,
    encoding: "utf8",
    env: { ...process.env, ...withoutOthers(addons) },
  });
  process.stdout.write(up.stdout ?? "");
  if (up.status !== 0) {
    down();
    return notBuilt(`the cluster did not start: ${(up.stderr ?? "").trim().split("\n").at(-1)}`);
  }
  try {
    const kubeconfig = /export KUBECONFIG=(\S+)/.exec(up.stdout)?.[1];
    return await runTests({ SANDLOT_TEST_CLUSTER: kubeconfig });
  } finally {
    down();
  }
}

/** The image of the tests' sandboxes. Returns the problem, or `null`. */
function makeImage() {
  try {
    const rootfs = testImageArchive();
    const daemon = join(ROOT, "packages", "sandboxd", "dist");
    const made = spawnSync(join(HERE, "sandbox-image.sh"), [rootfs, repositoryNode(), daemon], { encoding: "utf8" });
    return made.status === 0 ? null : `the image was not made: ${made.stderr.trim().split("\n").at(-1)}`;
  } catch (error) {
    return `the image was not made: ${error instanceof Error ? error.message : error}`;
  }
}

/** The image of the chart, anew after each build of the packages. Returns the problem, or `null`. */
function makeGatewayImage() {
  const images = join(CACHE, "img");
  const made = join(images, "gateway.tar");
  const newest = Math.max(...GATEWAY_SOURCES.map((path) => statSync(join(ROOT, path)).mtimeMs));
  if (existsSync(made) && statSync(made).mtimeMs > newest) return null;
  const args = [join(ROOT, "images", "archives.mjs"), "--to", images, "--only", "gateway"];
  const { status, stderr } = spawnSync(repositoryNode(), args, { encoding: "utf8" });
  return status === 0 ? null : `the gateway's image was not made: ${stderr.trim().split("\n").at(-1)}`;
}

/** A cache of another size may have more, which the tests of this one do not need. */
function withoutOthers(addons) {
  const switches = {
    coredns: "KUBE_DNS",
    netpol: "KUBE_NETPOL",
    gvisor: "KUBE_GVISOR",
    agentSandbox: "KUBE_AGENT_SANDBOX",
  };
  const off = Object.entries(switches).filter(([addon]) => !addons.includes(addon));
  return Object.fromEntries(off.map(([, variable]) => [variable, "0"]));
}

function down() {
  spawnSync(join(HERE, "down.sh"), ["--purge"], { stdio: "inherit" });
}

function notBuilt(reason) {
  console.log(`cluster: not built: ${reason}`);
  return { passed: 0, failed: 0 };
}

function later(ms) {
  return new Promise((resolve) => setTimeout(() => resolve("late"), ms).unref());
}
