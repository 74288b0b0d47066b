/**
 * Control groups on the real kernel: limits of memory, processes and processors hold, the daemon survives, hits are
 * counted, and nothing is left. Runs where the fleet may make groups, on either version; `npm run vm` has version 2.
 */

import { existsSync, mkdirSync, readdirSync, rmdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { limitHit, openLimits } from "../../../src/host/limits/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { groupDirectories, LimitStage, needControlGroups, PATIENCE, STANDIN } from "./stage.ts";

const MEGABYTE = 1024 * 1024;
const NO_EVENTS = { oomKills: 0, pidsRefusals: 0, cpuThrottles: 0 };

describe("control groups", { timeout: 60_000 * PATIENCE }, () => {
  let stage: LimitStage;

  beforeEach((context) => {
    stage = new LimitStage();
    needControlGroups(context, stage.limits);
  });
  afterEach(() => stage.close());

  it("holds one process that takes too much memory, and counts it", async () => {
    const group = stage.group({ memoryBytes: 256 * MEGABYTE, pidsMax: 100 });
    const ended = await stage.run(group, [process.execPath, STANDIN, "1", "600", "1000"]);
    console.log(`memory, one of 600 MB in 256 MB: ${ended.stdout.trim()}, ${JSON.stringify(group.events())}`);
    expect(ended).toMatchObject({ code: 0, signal: null });
    expect(JSON.parse(ended.stdout)).toEqual({ killed: 1, completed: 0, ends: 1 });
    expect(group.events().oomKills).toBe(1);
    expect(limitHit(NO_EVENTS, group.events())).toBe("memory");
  });

  it("lets the daemon live when sixty small processes take too much memory", async () => {
    const group = stage.group({ memoryBytes: 256 * MEGABYTE, pidsMax: 200 });
    const ended = await stage.run(group, [process.execPath, STANDIN, "60", "8", "1000"]);
    console.log(`memory, sixty of 8 MB in 256 MB: ${ended.stdout.trim()}, ${JSON.stringify(group.events())}`);
    expect(ended).toMatchObject({ code: 0, signal: null });
    const { killed, completed } = JSON.parse(ended.stdout) as { killed: number; completed: number };
    expect(killed).toBeGreaterThan(20);
    expect(completed).toBeGreaterThan(0);
    expect(group.events().oomKills).toBe(killed);
  });

  it("would lose the daemon if commands had the daemon's score", async () => {
    const group = stage.group({ memoryBytes: 256 * MEGABYTE, pidsMax: 200 });
    const ended = await stage.run(group, [process.execPath, STANDIN, "60", "8", "200"]);
    console.log(`memory, the same without protection: daemon ended by ${ended.signal}`);
    expect(ended.signal).toBe("SIGKILL");
  });

  it("stops a fork bomb at the process limit, and counts the refusals", async () => {
    const group = stage.group({ pidsMax: 64 });
    const child = stage.start(group, ["/bin/bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 30"]);
    child.stderr?.resume();
    await expect.poll(() => group.events().pidsRefusals).toBeGreaterThan(0);
    const seen = group.usage().processCount ?? 0;
    console.log(`fork bomb: ${seen} processes of ${group.usage().processMax}, ${group.events().pidsRefusals} refused`);
    expect(seen).toBeLessThanOrEqual(64);
    expect(limitHit(NO_EVENTS, group.events())).toBe("pids");
    expect(group.killExcept([]).length).toBeGreaterThan(0);
    await expect.poll(() => group.processes()).toEqual([]);
    expect(group.usage().processMax).toBe(64);
  });

  it("gives no more processor time than its share", async () => {
    // Little enough to be reached on a busy machine.
    const share = 0.1;
    const group = stage.group({ cpuCount: share });
    const busy = Array.from({ length: availableParallelism() }, () => "while :; do :; done &").join(" ");
    const child = stage.start(group, ["/bin/bash", "-c", `${busy} wait`]);
    await expect.poll(() => group.events().cpuThrottles).toBeGreaterThan(0);
    const [from, cpuFrom] = [performance.now(), group.usage().cpuMs ?? 0];
    await sleep(2_000);
    const used = ((group.usage().cpuMs ?? 0) - cpuFrom) / (performance.now() - from);
    console.log(`processors: ${used.toFixed(3)} used of ${share}, ${group.events().cpuThrottles} periods held back`);
    expect(used).toBeLessThan(share * 1.3);
    child.kill("SIGKILL");
  });

  it("counts what lies in memory for everybody in the group", async () => {
    const group = stage.group({ memoryBytes: 256 * MEGABYTE });
    const eater = `perl -e 'my $x = "a" x (24 << 20); sleep 300' &`;
    stage.start(group, ["/bin/sh", "-c", `${eater} ${eater} ${eater} ${eater} wait`]);
    await expect.poll(() => group.usage().memoryBytes).toBeGreaterThan(64 * MEGABYTE);
    expect(group.usage()).toMatchObject({ memoryMaxBytes: 256 * MEGABYTE });
    expect(group.usage().processCount).toBeGreaterThanOrEqual(5);
  });

  it("spares the given processes", async () => {
    const group = stage.group({ pidsMax: 50 });
    const keeper = stage.start(group, ["/bin/sleep", "30"]);
    stage.start(group, ["/bin/sleep", "30"]);
    await expect.poll(() => group.processes()?.length).toBe(2);
    expect(group.killExcept([keeper.pid ?? 0])).toHaveLength(1);
    await expect.poll(() => group.processes()).toEqual([keeper.pid]);
    expect(group.usage().processMax).toBe(50);
  });

  it("enters before the program's first step, which then runs as another account", async () => {
    const group = stage.group({ pidsMax: 50 });
    const ended = await stage.run(group, [
      "setpriv",
      "--reuid=59998",
      "--regid=59998",
      "--clear-groups",
      "/bin/sh",
      "-c",
      "id -u; cat /proc/self/cgroup /proc/self/oom_score_adj; ulimit -c",
    ]);
    expect(ended.stdout).toMatch(/^59998$/m);
    const isUnified = stage.limits.description.memory.by === "cgroup-v2";
    for (const tree of isUnified ? ["0:"] : [":memory", ":cpu", ":pids"])
      expect(ended.stdout).toMatch(new RegExp(`${tree}:/sandlot/${stage.fleetId}/sandbox-0$`, "m"));
    expect(ended.stdout).toMatch(/^200\n0$/m);
  });

  it("refuses to start what cannot enter", async () => {
    const group = stage.group({});
    await group.release();
    const ended = await stage.run(group, ["/bin/echo", "started"]);
    expect(ended).toMatchObject({ code: 97, stdout: "" });
  });

  it("says which processes are left when it cannot remove a group", async () => {
    const group = stage.group({});
    const child = stage.start(group, ["/bin/sleep", "30"]);
    await expect.poll(() => group.processes()).toEqual([child.pid]);
    await expect(group.release()).rejects.toThrow(`still has processes: ${child.pid}`);
  });

  it("finds its fleet's groups again, and no other fleet's", async () => {
    stage.group({ pidsMax: 10 }, "left-over");
    const other = new LimitStage();
    try {
      other.group({}, "of-another-fleet");
      expect(stage.limits.findGroups()).toEqual(["left-over"]);
      const again = stage.limits.open("left-over");
      expect(again.usage().processMax).toBe(10);
      await again.release();
      expect(stage.limits.findGroups()).toEqual([]);
      expect(other.limits.findGroups()).toEqual(["of-another-fleet"]);
    } finally {
      await other.close();
    }
  });

  it("keeps a group's name inside its fleet", () => {
    for (const name of ["", "..", "a/b", "../other", "a\0b"]) expect(() => stage.limits.create(name, {})).toThrow();
    expect(stage.limits.findGroups()).toEqual([]);
  });

  it("leaves no half of a group when a limit is refused", () => {
    const before = countGroups();
    expect(() => stage.group({ memoryBytes: 64 * MEGABYTE, pidsMax: -5 })).toThrow();
    expect(countGroups()).toBe(before);
  });

  it("removes what fleets left that were killed while they opened", () => {
    stage.group({}, "keeps-the-parents");
    const parents = groupDirectories(stage.fleetId).filter(existsSync);
    const left = parents.map((parent) => join(parent, ".trial-00000000000000aa"));
    for (const path of left) mkdirSync(path);
    try {
      expect(left.filter(existsSync)).not.toEqual([]);
      openLimits({ fleetId: stage.fleetId, world: systemWorld() }).close();
      expect(left.filter(existsSync)).toEqual([]);
    } finally {
      for (const path of left.filter(existsSync)) rmdirSync(path);
    }
  });

  function countGroups(): number {
    return groupDirectories(stage.fleetId)
      .filter(existsSync)
      .flatMap((path) => readdirSync(path, { withFileTypes: true }).filter((entry) => entry.isDirectory())).length;
  }
});
