/**
 * A Docker engine for tests: a running one, or a private `dockerd` with its own root, socket and pid file.
 *
 *   node scripts/docker-test-engine.mjs run -- vitest run packages/fleet/test/backends/docker
 *   const engine = await holdTestEngine();   …   await engine.release();
 *
 * Several processes may hold the private engine; the last release stops it and removes everything. mmdebstrap builds
 * the test image, without a registry, and `.cache/` keeps it. Missing programs are installed from Debian if this
 * process is root there; otherwise `holdTestEngine` returns the reason why there is no engine.
 *
 * gVisor's `runsc`, from Debian's backports, is registered twice if available: as `runsc`, which shows sockets that
 * containers make, and as `runsc-closed`, which does not.
 *
 * `SANDLOT_TEST_DOCKER_HOST` names an engine to use instead; it is never stopped.
 */
import { spawn, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { installPackages, leavesSystemPackagesAlone } from "./debian-packages.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const IMAGE_TAR = join(ROOT, ".cache", "docker-test-image.tar");
const IMAGE_PACKAGES = "ca-certificates,git,netcat-openbsd,procps,python3-minimal,ripgrep";
export const TEST_IMAGE = "sandlot-test:1";

/** A test that ends the engine needs its own: `SANDLOT_TEST_ENGINE` distinguishes them. */
const PLACE = `/tmp/sandlot-docker-${process.getuid?.() ?? 0}${process.env.SANDLOT_TEST_ENGINE ?? ""}`;
const SOCKET = join(PLACE, "docker.sock");
const HOLDERS = join(PLACE, "holders");
const LOCK = `${PLACE}.lock`;
const START_MS = 60_000;
const STOP_MS = 30_000;
const LOOK_MS = 50;

/**
 * @returns {Promise<{ host: string, image: string, release(): Promise<void> } | { reason: string }>}
 */
export async function holdTestEngine() {
  const given = process.env.SANDLOT_TEST_DOCKER_HOST;
  if (given !== undefined) return { host: given, image: TEST_IMAGE, release: async () => {} };
  if (process.getuid?.() !== 0) return { reason: "a private Docker engine takes root" };
  return locked(async () => {
    const missing = installWhatIsMissing();
    if (missing !== null) return { reason: missing };
    // A run that was killed with all its processes leaves an engine's pid file, mounts and half-made containers.
    if (!isHeld() && !(await answers())) await removeEngine();
    const holder = join(HOLDERS, `${identityOf(process.pid)}-${Math.random().toString(16).slice(2)}`);
    mkdirSync(HOLDERS, { recursive: true, mode: 0o700 });
    writeFileSync(holder, "");
    try {
      if (!(await answers())) await startEngine();
      await loadImage();
    } catch (error) {
      rmSync(holder);
      await stopWhenUnused();
      throw error;
    }
    const release = () =>
      locked(async () => {
        rmSync(holder, { force: true });
        await stopWhenUnused();
      });
    return { host: `unix://${SOCKET}`, image: TEST_IMAGE, release };
  });
}

/** The archive of the test image, for other engines. */
export function testImageArchive() {
  if (!existsSync(IMAGE_TAR)) makeImage();
  return IMAGE_TAR;
}

/** Ends the private engine as a crash would. */
export async function crashTestEngine() {
  const pid = enginePid();
  if (pid !== null) kill(pid);
  await until(STOP_MS, "dockerd ended", () => enginePid() === null);
  // Its containerd has ended with it. Without a reaper for orphans its pid would still be taken.
  for (const file of ["dockerd.pid", "exec/containerd/containerd.pid"]) rmSync(join(PLACE, file), { force: true });
}

/** After `crashTestEngine`. */
export async function startTestEngine() {
  await startEngine();
}

function installWhatIsMissing() {
  // A test that needs gVisor reports when it is missing.
  if (!has("runsc") && has("apt-get")) installFromBackports("runsc");
  return (
    installed("dockerd", ["docker.io"]) ?? (existsSync(IMAGE_TAR) ? null : installed("mmdebstrap", ["mmdebstrap"]))
  );
}

/** Installs the Debian packages of a missing program. Returns the problem, or `null`. */
export function installed(program, debianPackages, suite) {
  if (has(program)) return null;
  if (process.getuid?.() !== 0 || !has("apt-get")) return `${program} is not installed`;
  return installPackages(debianPackages, { suite }) ? null : `${debianPackages.join(", ")} could not be installed`;
}

function installFromBackports(debianPackage) {
  const release = /^VERSION_CODENAME=(\w+)$/m.exec(read("/etc/os-release"))?.[1];
  if (release !== "bookworm" || process.getuid?.() !== 0 || leavesSystemPackagesAlone()) return;
  const suite = `${release}-backports`;
  const list = "/etc/apt/sources.list.d/sandlot-backports.list";
  if (!existsSync(list)) writeFileSync(list, `deb http://deb.debian.org/debian ${suite} main\n`);
  installed(debianPackage, [debianPackage], suite);
}

function has(program) {
  return (
    spawnSync("/bin/sh", ["-c", `command -v ${program}`], { env: { PATH: `/usr/sbin:/sbin:${process.env.PATH}` } })
      .status === 0
  );
}

/** Options that the command line lacks. */
function engineConfig() {
  // Nested virtualization may be missing, and ptrace is slow.
  const plain = ["--platform=systrap"];
  const runtimes = {
    runsc: { path: "runsc", runtimeArgs: [...plain, "--host-uds=all", "--network=none"] },
    "runsc-closed": { path: "runsc", runtimeArgs: [...plain, "--network=host"] },
  };
  const path = join(PLACE, "daemon.json");
  writeFileSync(path, JSON.stringify(has("runsc") ? { runtimes } : {}));
  return path;
}

async function startEngine() {
  const log = openSync(join(PLACE, "dockerd.log"), "a", 0o600);
  const places = ["--data-root", join(PLACE, "root"), "--exec-root", join(PLACE, "exec")];
  const child = spawn(
    "dockerd",
    [
      ...places,
      ...["--config-file", engineConfig()],
      ...["--host", `unix://${SOCKET}`, "--pidfile", join(PLACE, "dockerd.pid")],
      ...["--bridge=none", "--iptables=false", "--ip6tables=false", "--containerd-namespace", "sandlot-test"],
    ],
    { stdio: ["ignore", log, log], detached: true, env: { PATH: `/usr/sbin:/sbin:${process.env.PATH}` } },
  );
  child.unref();
  let ended = false;
  child.once("exit", () => {
    ended = true;
  });
  await until(START_MS, "dockerd answers", () => {
    if (ended) throw new Error(`dockerd ended: ${readFileSync(join(PLACE, "dockerd.log"), "utf8").slice(-2_000)}`);
    return answers();
  });
}

async function loadImage() {
  // Also needed by other engines, even if this one has the image.
  if (!existsSync(IMAGE_TAR)) makeImage();
  if ((await status(`/images/${TEST_IMAGE}/json`)) === 200) return;
  const { status: code, stderr } = spawnSync("docker", ["--host", `unix://${SOCKET}`, "import", IMAGE_TAR, TEST_IMAGE]);
  if (code !== 0) throw new Error(`the test image could not be imported: ${stderr}`);
}

function makeImage() {
  mkdirSync(join(ROOT, ".cache"), { recursive: true });
  const coming = `${IMAGE_TAR}.${process.pid}.tar`;
  process.stderr.write("making the test image (a minute or two, once)\n");
  const args = ["--variant=minbase", `--include=${IMAGE_PACKAGES}`, "bookworm", coming];
  const { status: code, stderr } = spawnSync("mmdebstrap", args, { stdio: ["ignore", "ignore", "pipe"] });
  if (code !== 0) throw new Error(`mmdebstrap failed: ${String(stderr).slice(-2_000)}`);
  renameSync(coming, IMAGE_TAR);
}

/** Whether a running process holds it. */
function isHeld() {
  if (!existsSync(HOLDERS)) return false;
  return readdirSync(HOLDERS).some((name) => isIdentity(name.split("-").slice(0, 2).join("-")));
}

async function stopWhenUnused() {
  if (!isHeld()) await removeEngine();
}

async function removeEngine() {
  // It is unused and nothing is kept, so a clean shutdown, which takes 15 s, is not needed.
  await crashTestEngine();
  for (const pid of remainsOf(PLACE)) kill(pid);
  await until(STOP_MS, "containerd ended", () => remainsOf(PLACE).length === 0);
  // The mounts of a killed dockerd would be in the way, and a removal must not go through them.
  for (const mount of mountsBelow(PLACE)) spawnSync("umount", ["--lazy", mount]);
  rmSync(PLACE, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
}

function enginePid() {
  try {
    const pid = Number(readFileSync(join(PLACE, "dockerd.pid"), "utf8"));
    return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes(PLACE) ? pid : null;
  } catch {
    return null;
  }
}

/** Processes that a killed engine at this place left: its containerd, shims, and the processes in their containers. */
export function remainsOf(place) {
  const processes = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => ({
      pid: Number(name),
      command: read(`/proc/${name}/cmdline`),
      status: read(`/proc/${name}/status`),
    }));
  const ours = new Set(processes.filter(({ command }) => command.includes(`${place}/exec/`)).map(({ pid }) => pid));
  for (let known = -1; known !== ours.size; ) {
    known = ours.size;
    for (const { pid, status } of processes) if (ours.has(Number(/^PPid:\s+(\d+)$/m.exec(status)?.[1]))) ours.add(pid);
  }
  return [...ours].filter(runs);
}

function read(path) {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

export function mountsBelow(place) {
  return readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[4] ?? "")
    .filter((path) => path.startsWith(`${place}/`))
    .reverse();
}

/** A process that ended meanwhile counts as killed: much of an engine ends with its first processes. */
export function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

function runs(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/**
 * A pid is reused, also by another boot; together with its start time it is unique. A zombie is no process, also where
 * orphans are not reaped and their pids stay taken.
 */
function identityOf(pid) {
  const stat = read(`/proc/${pid}/stat`);
  const [state, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return state === "Z" ? null : `${pid}-${rest[18]}`;
}

function isIdentity(text) {
  return identityOf(Number(text.split("-")[0])) === text;
}

async function answers() {
  return existsSync(SOCKET) && (await status("/_ping")) === 200;
}

function status(path) {
  return new Promise((resolve) => {
    const asked = request({ socketPath: SOCKET, path, timeout: 5_000 }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    asked.once("timeout", () => asked.destroy());
    asked.once("error", () => resolve(null));
    asked.end();
  });
}

async function until(ms, what, check) {
  const deadline = Date.now() + ms;
  while (!(await check())) {
    if (Date.now() > deadline) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

/** One process at a time starts or stops the engine. A lock whose owner is gone is broken. */
async function locked(work) {
  await until(START_MS + 5 * 60_000, `${LOCK} is free`, () => {
    try {
      mkdirSync(LOCK);
      writeFileSync(join(LOCK, identityOf(process.pid)), "");
      return true;
    } catch {
      breakStaleLock();
      return false;
    }
  });
  try {
    return await work();
  } finally {
    rmSync(LOCK, { recursive: true, force: true });
  }
}

function breakStaleLock() {
  try {
    const owners = readdirSync(LOCK);
    const isOld = Date.now() - statSync(LOCK).mtimeMs > 5_000;
    if (owners.length === 0 ? isOld : !owners.some(isIdentity)) rmSync(LOCK, { recursive: true, force: true });
  } catch {
    // Free by now.
  }
}

async function main([verb, separator, ...command]) {
  if (verb !== "run" || separator !== "--" || command.length === 0) {
    process.stderr.write("usage: node scripts/docker-test-engine.mjs run -- <command>\n");
    return 2;
  }
  const engine = await holdTestEngine();
  if ("reason" in engine) {
    process.stderr.write(`no Docker engine: ${engine.reason}\n`);
    return process.env.CI === "true" ? 1 : 0;
  }
  try {
    const [program, ...args] = command;
    const env = { ...process.env, SANDLOT_TEST_DOCKER_HOST: engine.host };
    const child = spawn(program, args, { stdio: "inherit", env });
    return await new Promise((resolve) => {
      child.once("error", () => resolve(127));
      child.once("exit", (code) => resolve(code ?? 1));
    });
  } finally {
    await engine.release();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
