/**
 * An engine for faults: a private `dockerd` whose data is on a small separate file system, behind a loop device.
 *
 * Invariants
 * - Signals go only to the process that was started here.
 * - However the run ends, `endNow` leaves no process, mount, loop device or file of it.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import Docker from "dockerode";
import { holdTestEngine, mountsBelow, remainsOf, TEST_IMAGE } from "../../../scripts/docker-test-engine.mjs";

const IMAGE_TAR = fileURLToPath(new URL("../../../.cache/docker-test-image.tar", import.meta.url));
const DISK_BYTES = 1_200 * 1024 * 1024;
const ANSWER_MS = 60_000;
const END_MS = 30_000;
const LOOK_MS = 25;
const ENVIRONMENT = { PATH: `/usr/sbin:/sbin:${process.env.PATH}` };

export class ChaosEngine {
  readonly place = mkdtempSync("/tmp/sl-chaos-");
  readonly host = `unix://${join(this.place, "docker.sock")}`;
  readonly image = TEST_IMAGE;
  readonly docker = new Docker({ socketPath: join(this.place, "docker.sock") });
  #process: ChildProcess | null = null;

  /** Installs missing programs, creates the file system, and starts. Returns a reason where that is impossible. */
  static async open(): Promise<ChaosEngine | string> {
    if (process.getuid?.() !== 0) return "a private Docker engine takes root";
    if (!existsSync(IMAGE_TAR) || spawnSync("dockerd", ["--version"], { env: ENVIRONMENT }).status !== 0) {
      const held = await holdTestEngine();
      if ("reason" in held) return held.reason;
      await held.release();
    }
    const engine = new ChaosEngine();
    process.on("exit", () => engine.endNow());
    try {
      engine.#makeDisk();
      await engine.start(false);
      run("docker", "--host", engine.host, "import", IMAGE_TAR, TEST_IMAGE);
      return engine;
    } catch (error) {
      engine.endNow();
      throw error;
    }
  }

  /** `keepsContainers`: containers outlive this run of the engine. */
  async start(keepsContainers: boolean): Promise<void> {
    const log = openSync(join(this.place, "dockerd.log"), "a", 0o600);
    const child = spawn(
      "dockerd",
      [
        ...["--data-root", this.#disk, "--exec-root", join(this.place, "exec"), "--host", this.host],
        ...["--pidfile", join(this.place, "dockerd.pid"), "--containerd-namespace", "sandlot-chaos"],
        ...["--bridge=none", "--iptables=false", "--ip6tables=false", ...(keepsContainers ? ["--live-restore"] : [])],
      ],
      { stdio: ["ignore", log, log], env: ENVIRONMENT },
    );
    closeSync(log);
    this.#process = child;
    const deadline = Date.now() + ANSWER_MS;
    while (!(await this.docker.ping().then(Boolean, () => false))) {
      if (child.exitCode !== null || Date.now() > deadline) throw new Error(`dockerd did not answer:\n${this.log()}`);
      await sleep(LOOK_MS);
    }
  }

  /** `SIGTERM` restarts an engine, `SIGKILL` crashes it. */
  async end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    const child = this.#process;
    if (child === null || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    const late = sleep(END_MS, "late", { ref: false });
    if ((await Promise.race([ended, late])) === "late") throw new Error(`dockerd did not end by ${signal}`);
    this.#process = null;
    // Its containerd ends with it. Without a reaper for orphans its pid would still be taken.
    for (const file of ["dockerd.pid", "exec/containerd/containerd.pid"])
      rmSync(join(this.place, file), { force: true });
  }

  freeze(): void {
    this.#process?.kill("SIGSTOP");
  }

  thaw(): void {
    this.#process?.kill("SIGCONT");
  }

  /** Leaves no byte free on the engine's disk. */
  fill(): void {
    const file = openSync(join(this.#disk, FILLER), "w");
    const piece = Buffer.alloc(1024 * 1024, 1);
    try {
      for (let size = piece.length; size >= 1; size = size > 4_096 ? 4_096 : size === 4_096 ? 1 : 0) {
        try {
          for (;;) writeSync(file, piece, 0, size);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
        }
      }
    } finally {
      closeSync(file);
    }
  }

  empty(): void {
    rmSync(join(this.#disk, FILLER), { force: true });
  }

  freeBytes(): number {
    const { bsize, bavail } = statfsSync(this.#disk);
    return bsize * bavail;
  }

  log(): string {
    return readFileSync(join(this.place, "dockerd.log"), "utf8").slice(-2_000);
  }

  async close(): Promise<void> {
    this.thaw();
    await this.end("SIGTERM").catch(() => {});
    this.endNow();
  }

  endNow(): void {
    this.#process?.kill("SIGKILL");
    this.#process = null;
    for (const pid of remainsOf(this.place)) tryKill(pid);
    for (const mount of mountsBelow(this.place)) spawnSync("umount", ["--lazy", mount], { env: ENVIRONMENT });
    rmSync(this.place, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  get #disk(): string {
    return join(this.place, "root");
  }

  #makeDisk(): void {
    const file = join(this.place, "disk");
    writeFileSync(file, "");
    truncateSync(file, DISK_BYTES);
    mkdirSync(this.#disk);
    // No space is reserved for root, for whom the disk must be full.
    run("mkfs.ext4", "-q", "-m", "0", file);
    run("mount", "-o", "loop", file, this.#disk);
  }
}

const FILLER = "filler";

function run(program: string, ...args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { env: ENVIRONMENT, encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} failed: ${error?.message ?? stderr}`);
}

function tryKill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended meanwhile.
  }
}
