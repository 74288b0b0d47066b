/**
 * Podman's service for tests: Debian's package, with its own root, run directory and socket, and the image of the other
 * tests. All of it is removed afterwards.
 */

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Docker from "dockerode";
import { installed, testImageArchive } from "../../../../../scripts/docker-test-engine.mjs";
import type { TestEngine } from "./docker-harness.ts";

const IMAGE = "sandlot-test:1";
/** Most of it is the import of the image. */
const START_MS = 110_000;
const LOOK_MS = 50;

/**
 * In its own mount namespace, which takes its mounts along when it ends. Each version request makes Podman query dpkg
 * four times about its own programs, which on a busy machine exceeds every timeout.
 */
const SCRIPT = `
mount --bind /bin/true /usr/bin/dpkg
archive=$0 image=$1 address=$2
shift 2
"$@" import "$archive" "$image" >&2
exec "$@" system service --time=0 "$address"`;

/** Podman, or the reason why there is none. With `CI=true` there must be one. */
export async function testPodman(): Promise<TestEngine | { readonly reason: string }> {
  const missing =
    process.getuid?.() === 0
      ? (installed("podman", ["podman", "containernetworking-plugins"]) as string | null)
      : "Podman with a root of its own takes root";
  if (missing === null) return startPodman();
  if (process.env.CI === "true") throw new Error(`no Podman: ${missing}`);
  process.stderr.write(`skipped, no Podman: ${missing}\n`);
  return { reason: missing };
}

async function startPodman(): Promise<TestEngine> {
  const place = mkdtempSync(join(tmpdir(), "sl-podman-"));
  const [socketPath, config] = [join(place, "p.sock"), join(place, "containers.conf")];
  writeFileSync(config, '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n');
  const directories = ["--root", join(place, "root"), "--runroot", join(place, "run"), "--tmpdir", join(place, "tmp")];
  const env = { ...process.env, CONTAINERS_CONF: config };
  const service = spawn(
    "unshare",
    [
      ...["--mount", "--propagation", "slave", "/bin/sh", "-ec", SCRIPT, testImageArchive(), IMAGE],
      ...[`unix://${socketPath}`, "podman", ...directories],
    ],
    { env, stdio: ["ignore", "ignore", "pipe"] },
  );
  let said = "";
  service.stderr.on("data", (chunk: Buffer) => (said = (said + chunk.toString()).slice(-2_000)));
  const ended = new Promise<void>((resolve) => service.once("exit", () => resolve()));
  const docker = new Docker({ socketPath });
  const release = async () => {
    // It would wait for unused connections, and has nothing to clean up.
    service.kill("SIGKILL");
    await ended;
    rmSync(place, { recursive: true, force: true });
  };
  try {
    for (const startedAt = Date.now(); !existsSync(socketPath); ) {
      if (Date.now() - startedAt > START_MS || service.exitCode !== null) throw new Error(`no Podman: ${said}`);
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    return { host: `unix://${socketPath}`, image: IMAGE, docker, release };
  } catch (error) {
    await release();
    throw error;
  }
}
