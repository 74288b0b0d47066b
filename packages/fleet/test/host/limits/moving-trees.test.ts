/**
 * A disk budget against a sandbox that moves its directories while they are measured, and the cost of idle sandboxes.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { holdStill } from "../../../src/host/limits/disk/hold.ts";
import { DiskWatcher } from "../../../src/host/limits/index.ts";
import type { World } from "../../../src/world/world.ts";
import { blueprint, isRoot, onStage, removeDaemon, world } from "../../backends/local/local-harness.ts";

const MIB = 1024 * 1024;
const LIMITS = { diskBytes: 64 * MIB, filesMax: 2_000 };
const WANTED_MIB = 900;
/** How much may be written unnoticed, on a disk that takes a few hundred megabytes per second. */
const OVERSHOOT_MIB = 400;

afterAll(removeDaemon);

/** Many nested directories change their names all the time; a process writes in the innermost. */
const RENAMING = String.raw`
  chdir '/mnt/user-data/workspace'; my @levels;
  for (1 .. 12) { opendir(my $level, '.') or die; push @levels, $level; mkdir 'a'; chdir 'a' }
  my @renamers;
  for (1 .. 6) {
    push @renamers, my $renamer = fork;
    if (!$renamer) { while (1) { for my $level (@levels) { chdir $level; rename('a', 'b') or rename 'b', 'a' } } }
  }
  my $block = 'x' x (1 << 20);
  for my $n (1 .. ${WANTED_MIB}) { open(my $f, '>', "f$n") or die $!; print $f $block; close $f }
  kill 'KILL', @renamers;
  $| = 1;
  print "written\n";
`;

/** Everything moves out of a directory that the walk has yet to visit, into one that it has visited. */
const SHUTTLING = String.raw`
  chdir '/mnt/user-data/workspace'; mkdir $_ for map { "d$_" } 0 .. 40; mkdir 'd0/load';
  my $writer = fork;
  if (!$writer) {
    chdir 'd0/load' or die; my $block = 'x' x (1 << 20);
    for my $n (1 .. ${WANTED_MIB}) { open(my $f, '>', "f$n") or die $!; print $f $block; close $f }
    exit 0;
  }
  use POSIX (); select undef, undef, undef, 0.2;
  for (my $at = 0; waitpid($writer, POSIX::WNOHANG()) == 0; ) { my $to = int rand 41; rename "d$at/load", "d$to/load" and $at = $to }
  print "written\n";
`;

describe("a disk budget", { timeout: 120_000 }, () => {
  it.for([
    ["renames nested directories", RENAMING],
    ["shuttles a directory about", SHUTTLING],
  ] as const)("holds against a sandbox that %s", async ([, script], context) => {
    if (!isRoot) return context.skip("which processes to stop takes control groups");
    await onStage(async (stage, harness) => {
      const key = stage.newKey();
      const made = await stage.make(key, { blueprint: { ...blueprint, limits: LIMITS } });
      const { sandbox } = await stage.attach(made.target);
      const { stdout, stderr } = await sandbox.exec(["perl", "-e", script], { timeoutMs: 60_000 });
      const home = join(harness.home, harness.fleetId, "homes", threadKeyOf(key.user, key.thread));
      const takenMib = Number(/^\d+/.exec(execFileSync("/usr/bin/du", ["-sm", home], { encoding: "utf8" }))?.[0]);
      console.log(`${takenMib} MiB on disk of ${WANTED_MIB} wanted, ${LIMITS.diskBytes / MIB} allowed`);
      expect(stdout).not.toContain("written");
      expect(stderr).toContain("disk_limit_exceeded");
      expect(takenMib).toBeLessThan(LIMITS.diskBytes / MIB + OVERSHOOT_MIB);
      // Work from meanwhile goes on: nothing stays frozen for ever.
      await sandbox.exec("rm -rf /mnt/user-data/workspace/*");
      await stage.eventually("there is room again", async () => {
        const { exitCode } = await sandbox.exec("echo there is room again > note && sleep 0.2");
        return exitCode === 0;
      });
    });
  });

  it("is not deceived by a single look while everything moves", async () => {
    const place = mkdtempSync(join(tmpdir(), "sl-moving-"));
    onTestFinished(() => rmSync(place, { recursive: true, force: true }));
    // The test triggers each measurement.
    const still: World = {
      ...world,
      timer: (ms, run, options) =>
        options?.background === true ? { cancel: () => {} } : world.timer(ms, run, options),
    };
    const script = RENAMING.replace("/mnt/user-data/workspace", place).replace(
      /1 \.\. \d+\) \{ open/,
      "1 .. 100) { open",
    );
    let child: ChildProcess | null = null;
    const group = () => groupOf(child?.pid ?? 0);
    const watchers = Array.from({ length: 10 }, () => {
      const watcher = new DiskWatcher({ world: still });
      const hold = () => holdStill(group, world);
      const budget = watcher.watch({
        ...{ place: () => place, maxBytes: LIMITS.diskBytes, maxFiles: LIMITS.filesMax, hold, processes: group },
        ...{ onExceeded: () => {}, onProblem: (error) => expect.unreachable(String(error)) },
      });
      return { watcher, budget };
    });
    for (const { watcher } of watchers) await watcher.look();
    child = spawn("perl", ["-e", `${script.replace("kill 'KILL', @renamers;", "")} sleep 60;`], { detached: true });
    try {
      await new Promise((resolve) => child?.stdout?.once("data", resolve));
      for (const { watcher } of watchers) await watcher.look();
      expect(watchers.map(({ budget }) => budget.exceeded)).toEqual(watchers.map(() => true));
      await new Promise((resolve) => world.timer(200, () => resolve(undefined)));
      // Thawed again.
      expect(group().filter((pid) => stateOf(pid) === "T")).toEqual([]);
    } finally {
      process.kill(-(child.pid ?? 0), "SIGKILL");
      for (const { watcher } of watchers) watcher.close();
    }
  });

  it("stops no sandbox for writes of others to the same disk", async (context) => {
    if (!isRoot) return context.skip("which processes to stop takes control groups");
    await onStage(async (stage, harness) => {
      const { sandbox } = await stage.attach(
        (await stage.make(stage.newKey(), { blueprint: { ...blueprint, limits: LIMITS } })).target,
      );
      const renaming = "mkdir d; for i in $(seq 1 400); do mv d e; mv e d; echo $i; sleep 0.005; done";
      const running = sandbox.exec(renaming, { timeoutMs: 60_000 });
      const ballast = join(harness.home, "ballast");
      for (let mib = 64; mib <= 512; mib += 64) {
        execFileSync("fallocate", ["-l", `${mib}M`, ballast]);
        await stage.pause(150);
      }
      const result = await running;
      expect(existsSync(ballast)).toBe(true);
      expect(result).toMatchObject({ exitCode: 0, stderr: "" });
      expect(result.stdout.trim().split("\n")).toHaveLength(400);
    });
  });
});

function groupOf(leader: number): readonly number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && fieldsOf(name)?.[2] === String(leader))
    .map(Number);
}

function stateOf(pid: number): string | undefined {
  return fieldsOf(String(pid))?.[0];
}

/** From the state on. */
function fieldsOf(pid: string): readonly string[] | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return null;
  }
}

it("costs next to nothing for a hundred idle sandboxes", { timeout: 60_000 }, async () => {
  let asked = 0;
  const place = mkdtempSync(join(tmpdir(), "sl-idle-"));
  onTestFinished(() => rmSync(place, { recursive: true, force: true }));
  for (let at = 0; at < 200; at += 1) writeFileSync(join(place, `f${at}`), "");
  const cost = async (count: number) => {
    const watcher = new DiskWatcher({ world });
    for (let at = 0; at < count; at += 1)
      watcher.watch({
        place: () => {
          asked += 1;
          return place;
        },
        ...{ maxBytes: Number.MAX_SAFE_INTEGER, maxFiles: Number.MAX_SAFE_INTEGER },
        isBusy: () => false,
        ...{ onExceeded: () => {}, onProblem: () => {} },
      });
    // From here on all have been measured.
    await watcher.look();
    asked = 0;
    const before = process.cpuUsage();
    const from = world.monotonicMs();
    await new Promise((resolve) => world.timer(3_000, () => resolve(undefined)));
    const { user, system } = process.cpuUsage(before);
    watcher.close();
    return (user + system) / 1_000 / (world.monotonicMs() - from);
  };
  const [none, hundred] = [await cost(0), await cost(100)];
  console.log(`100 idle sandboxes: ${((hundred - none) * 100).toFixed(2)} % of a processor, ${asked} places asked`);
  expect(hundred - none).toBeLessThan(0.05);
});
