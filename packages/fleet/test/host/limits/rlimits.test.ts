/**
 * Limits of processes, for accounts that may not make control groups: commands are limited, the daemon is not. Tried as
 * an ordinary account inside bubblewrap, once with the command prefix and once without.
 */

import { chmodSync, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { countsProcessesPerSandbox } from "../../../src/host/limits/rlimits.ts";
import { LimitStage } from "./stage.ts";

const MEGABYTE = 1024 * 1024;
const ACCOUNT = process.geteuid?.() === 0 ? { uid: 59_998, gid: 59_998 } : {};

describe("limits of processes", () => {
  let stage: LimitStage;
  let directory: string;
  beforeEach(() => {
    stage = new LimitStage({ controlGroups: "never" });
    // An ordinary account may not read the repository, where Node lies.
    directory = mkdtempSync(join(tmpdir(), "sandlot-rlimits-"));
    chmodSync(directory, 0o755);
    copyFileSync(process.execPath, join(directory, "node"));
  });
  afterEach(async () => {
    rmSync(directory, { recursive: true });
    await stage.close();
  });

  const inBwrap = (...argv: string[]) => [
    ...["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev"],
    ...["--proc", "/proc", "--tmpfs", "/home", "--", ...argv],
  ];
  /** Allocates memory and touches none, which is what the limit counts. */
  const eater = ["/usr/bin/python3", "-c", "import mmap; mmap.mmap(-1, 1200 << 20, 34); print('full')"];

  it("takes memory from a command that wants too much, and from no other", async () => {
    const group = stage.group({ memoryBytes: 256 * MEGABYTE });
    const free = await stage.run(group, inBwrap(...eater), ACCOUNT);
    const held = await stage.run(group, inBwrap(...group.commandPrefix, ...eater), ACCOUNT);
    console.log(
      `RLIMIT_DATA: without the prefix ${free.stdout.trim()}, with it ${held.code} ${held.stderr.trim().split("\n").at(-1)}`,
    );
    expect(free).toMatchObject({ code: 0, stdout: "full\n" });
    expect(held.code).not.toBe(0);
    expect(held.stderr).toMatch(/Cannot allocate memory/);
  });

  it("lets Node start, whatever the limit is", async () => {
    const group = stage.group({ memoryBytes: 64 * MEGABYTE, pidsMax: 100 });
    const ended = await stage.run(group, inBwrap(...group.commandPrefix, `${directory}/node`, "-p", "40 + 2"), ACCOUNT);
    expect(ended, ended.stderr).toMatchObject({ code: 0, stdout: "42\n" });
  });

  it("stops a fork bomb of commands, while the daemon can still start one", async () => {
    const group = stage.group({ pidsMax: 40 });
    // The shell stands for the daemon: its bomb carries the prefix, the shell does not.
    const bomb = `${group.commandPrefix.join(" ")} perl -e 'for (1 .. 200) { my $pid = fork // die "$!\\n"; exec "sleep", "20" unless $pid }' >/home/log 2>&1`;
    const script = `${bomb}; tail -1 /home/log; ls /proc | grep -c '^[0-9]'; echo daemon-starts; kill -9 -1`;
    const ended = await stage.run(group, inBwrap("/bin/bash", "-c", script), ACCOUNT);
    const count = Number(/^(\d+)$/m.exec(ended.stdout)?.[1]);
    console.log(`RLIMIT_NPROC 40: ${count} processes inside; ${ended.stdout.trim().split("\n").at(-1)}`);
    expect(ended.stdout).toContain("daemon-starts");
    expect(ended.stdout).toContain("Resource temporarily unavailable");
    expect(count).toBeGreaterThan(30);
    expect(count).toBeLessThan(50);
  });

  it("keeps files below the disk budget, and cores from anywhere", async () => {
    const group = stage.group({ fileMaxBytes: MEGABYTE });
    const script = "ulimit -c; ulimit -f; head -c 3000000 /dev/zero > /home/f; wc -c < /home/f";
    const ended = await stage.run(group, inBwrap("/bin/bash", "-c", script), ACCOUNT);
    expect(ended.stdout.trim().split("\n")).toEqual(["0", "1024", String(MEGABYTE)]);
    expect(ended.stderr).toContain("File size limit exceeded");
  });

  it("says what is held and what is not", () => {
    const { memory, cpu, pids, missing } = stage.limits.description;
    expect(memory).toMatchObject({ by: "rlimit", scope: "process" });
    expect(memory.says).toContain("not their sum");
    expect(cpu).toMatchObject({ by: "none" });
    expect(pids).toMatchObject({ by: "rlimit", scope: "sandbox" });
    expect(missing).toContain("switched off");
  });

  it("does not count processes by account where the kernel would count others", () => {
    for (const kernel of ["5.14.0", "5.15.3-generic", "6.1.0-28-amd64", "10.0"])
      expect(countsProcessesPerSandbox(kernel)).toBe(true);
    for (const kernel of ["5.13.19", "4.18.0-513.el8", "3.10"]) expect(countsProcessesPerSandbox(kernel)).toBe(false);
  });
});
