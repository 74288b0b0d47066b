/**
 * A machine for one run: two empty disks, a kernel with the host's files read-only below it, and its output. Nothing is
 * left, however it ends.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { closeSync, ftruncateSync, mkdtempSync, openSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Kernel } from "./kernel.ts";

const MEGABYTE = 1024 * 1024;
const DISKS = { ext4: 2_048 * MEGABYTE, xfs: 512 * MEGABYTE };
/** Bombs take 720 MB on purpose, and all written data is in memory. */
const MEMORY = "3072M";
const INIT = fileURLToPath(new URL("./init.sh", import.meta.url));
const REPOSITORY = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

/** Resolves with the tests' exit code; `null` when the machine ended without one. */
export async function runMachine(kernel: Kernel, parts: readonly string[], timeoutMs: number): Promise<number | null> {
  const directory = mkdtempSync(join(tmpdir(), "sandlot-vm-"));
  let machine: ChildProcess | undefined;
  const stop = () => machine?.pid !== undefined && endGroup(machine.pid);
  const onSignal = () => {
    stop();
    rmSync(directory, { recursive: true, force: true });
    process.exit(130);
  };
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  const timer = setTimeout(() => {
    console.log(`vm: not done within ${timeoutMs / 1_000} s`);
    stop();
  }, timeoutMs);
  try {
    makeDisks(directory, kernel);
    machine = spawn(kernel.program, argumentsFor(directory, kernel, parts), {
      cwd: directory,
      // The machine's memory is a file there: on a disk it would be written all the time.
      env: { PATH: process.env.PATH, HOME: directory, TMPDIR: "/dev/shm" },
      stdio: ["ignore", "pipe", "inherit"],
      detached: true,
    });
    return await told(machine);
  } finally {
    clearTimeout(timer);
    stop();
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
    rmSync(directory, { recursive: true, force: true });
  }
}

function makeDisks(directory: string, { makeXfs }: Kernel): void {
  for (const [name, bytes] of Object.entries(DISKS)) {
    const file = openSync(join(directory, name), "w");
    ftruncateSync(file, bytes);
    closeSync(file);
  }
  const ext4 = ["-q", "-F", "-O", "project,quota", "-E", "quotatype=prjquota", join(directory, "ext4")];
  execFileSync("mkfs.ext4", ext4, { env: { PATH: "/usr/sbin:/sbin:/usr/bin:/bin" } });
  execFileSync(makeXfs.program, ["-q", join(directory, "xfs")], { env: { LD_LIBRARY_PATH: makeXfs.libraries } });
}

function argumentsFor(directory: string, kernel: Kernel, parts: readonly string[]): readonly string[] {
  return [
    ...[`mem=${MEMORY}`, `uml_dir=${directory}`, "umid=sandlot", "loglevel=1"],
    ...[`ubd0=${join(directory, "ext4")}`, `ubd1=${join(directory, "xfs")}`],
    // The host's own files, read-only in the machine.
    ...["rootfstype=hostfs", "root=/dev/root", "rootflags=/", "ro"],
    ...["con=null", "con0=null,fd:1", `init=${INIT}`],
    // The kernel passes unknown arguments to the first process as its environment.
    ...[`SANDLOT_REPOSITORY=${REPOSITORY}`, `SANDLOT_NODE=${realpathSync(process.execPath)}`],
    ...[`SANDLOT_MODULES=${kernel.modules}`, `SANDLOT_PARTS=${parts.join(",")}`],
  ];
}

async function told(machine: ChildProcess): Promise<number | null> {
  let code: number | null = null;
  const { stdout } = machine;
  if (stdout === null) throw new Error("the machine has no output");
  for await (const line of createInterface({ input: stdout })) {
    const ended = /^vm: ended (\d+)/.exec(line);
    if (ended !== null) code = Number(ended[1]);
    else console.log(line);
  }
  return code;
}

/** The kernel has a host process for each of its own; all of them are in its group. */
function endGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
