/**
 * Control groups, version 2, on a tree of plain files. Entering, finding, killing and removing are tried on the real
 * version 2 where it is mounted, which takes no controllers. `control-groups.test.ts` measures the limits themselves on
 * a kernel that has them in version 2; `npm run vm` runs it there.
 */

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ControlGroups } from "../../../src/host/limits/control-groups.ts";
import { versionTwo } from "../../../src/host/limits/group-files.ts";
import { openLimits } from "../../../src/host/limits/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const FLEET = "fleet-1" as FleetId;
const world = systemWorld();

describe("version 2 on a tree of files", () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), "sandlot-cgroup-"));
  });
  afterEach(() => rmSync(root, { recursive: true }));

  const at = (path: string) => join(root, "sys/fs/cgroup", path);
  const text = (path: string) => readFileSync(at(path), "utf8");
  function plant(options: { own?: string; controllers?: string; mountRoot?: string } = {}): void {
    const { own = "/user.slice", controllers = "cpuset cpu io memory pids", mountRoot = "/" } = options;
    mkdirSync(join(root, "proc/self"), { recursive: true });
    const line = `30 20 0:26 ${mountRoot} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n`;
    writeFileSync(join(root, "proc/self/mountinfo"), `29 1 8:1 / / rw - ext4 /dev/sda rw\n${line}`);
    writeFileSync(join(root, "proc/self/cgroup"), `0::${own}\n`);
    for (const group of ["", own]) {
      mkdirSync(at(group), { recursive: true });
      writeFileSync(join(at(group), "cgroup.controllers"), `${controllers}\n`);
    }
  }
  const open = (isRoot = true) => openLimits({ fleetId: FLEET, world, root, isRoot });

  it("writes each limit in its words, and hands controllers down all the way", () => {
    plant();
    const group = open().create("one", { memoryBytes: 1_000_000, cpuCount: 1.5, pidsMax: 77 });
    expect(text("sandlot/fleet-1/one/memory.max")).toBe("1000000");
    expect(text("sandlot/fleet-1/one/cpu.max")).toBe("150000 100000");
    expect(text("sandlot/fleet-1/one/pids.max")).toBe("77");
    for (const above of ["", "sandlot", "sandlot/fleet-1"])
      expect(text(`${above}/cgroup.subtree_control`)).toBe("+memory +cpu +pids");
    expect(existsSync(at("sandlot/fleet-1/one/cgroup.subtree_control"))).toBe(false);
    expect(group.startPrefix).toContain(`${at("sandlot/fleet-1/one")}/cgroup.procs`);
    expect(group.commandPrefix).toEqual([]);
  });

  it("forbids swap where the kernel can", () => {
    plant();
    mkdirSync(at("sandlot/fleet-1/one"), { recursive: true });
    writeFileSync(at("sandlot/fleet-1/one/memory.swap.max"), "max\n");
    open().create("one", { memoryBytes: 5 });
    expect(text("sandlot/fleet-1/one/memory.swap.max")).toBe("0");
  });

  it("reads counters and use", () => {
    plant();
    const group = open().create("one", { memoryBytes: 4096, pidsMax: 5 });
    const files = {
      "memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
      "pids.events": "max 9\n",
      "cpu.stat": "usage_usec 2500000\nnr_periods 10\nnr_throttled 4\n",
      "memory.current": "2048\n",
      "pids.current": "3\n",
    };
    for (const [name, content] of Object.entries(files)) writeFileSync(at(`sandlot/fleet-1/one/${name}`), content);
    expect(group.events()).toEqual({ oomKills: 2, pidsRefusals: 9, cpuThrottles: 4 });
    expect(group.usage()).toEqual({
      memoryBytes: 2048,
      memoryMaxBytes: 4096,
      processCount: 3,
      processMax: 5,
      cpuMs: 2500,
    });
    writeFileSync(at("sandlot/fleet-1/one/memory.max"), "max\n");
    expect(group.usage().memoryMaxBytes).toBe(null);
  });

  it("stays in its own group when it is not root, and takes what was handed to it", () => {
    plant({ own: "/user.slice/app.scope", controllers: "memory pids" });
    const limits = open(false);
    const group = limits.create("one", { memoryBytes: 10, pidsMax: 3, cpuCount: 1 });
    expect(text("user.slice/app.scope/sandlot/fleet-1/one/memory.max")).toBe("10");
    expect(existsSync(at("user.slice/app.scope/sandlot/fleet-1/one/cpu.max"))).toBe(false);
    expect(group.commandPrefix).toEqual([]);
    expect(limits.description.cpu.by).toBe("none");
    expect(limits.description.missing).toContain("cpu");
  });

  it("counts paths from what the mount shows", () => {
    plant({ own: "/docker/abc/inner", mountRoot: "/docker/abc" });
    mkdirSync(at("inner"), { recursive: true });
    writeFileSync(at("inner/cgroup.controllers"), "memory cpu pids\n");
    open(false).create("one", { pidsMax: 3 });
    expect(text("inner/sandlot/fleet-1/one/pids.max")).toBe("3");
  });

  it("says what holds the limits", () => {
    plant();
    const { memory, missing } = open().description;
    expect(memory).toMatchObject({ by: "cgroup-v2", scope: "sandbox", measured: true });
    expect(memory.says).toContain("version 2");
    expect(missing).toBe(null);
  });

  it("falls back to limits of processes when there are no controllers", () => {
    plant({ controllers: "hugetlb" });
    const limits = open();
    expect(limits.description.memory.by).toBe("rlimit");
    expect(limits.description.missing).toContain("no control groups");
    expect(limits.create("one", { memoryBytes: 5_000_000, pidsMax: 9 }).commandPrefix).toEqual([
      "/usr/bin/prlimit",
      "--data=676088640:676088640",
      "--nproc=9:9",
      "--",
    ]);
  });
});

describe("version 2 on the kernel, without controllers", () => {
  const mountPoint = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].find((path) =>
    existsSync(`${path}/cgroup.controllers`),
  );

  it("enters, finds, kills and removes", async (context) => {
    if (mountPoint === undefined) return context.skip("version 2 is not mounted");
    if (process.geteuid?.() !== 0) return context.skip("only root may make groups there");
    const fleet = `test-${randomBytes(6).toString("hex")}` as FleetId;
    const dialect = versionTwo({ mountPoint, base: "/", controllers: [], ownPid: process.pid });
    const groups = new ControlGroups(dialect, new Set(), fleet, world);
    const group = groups.create("one", {});
    try {
      const [file = "", ...args] = [...group.startPrefix, "/bin/bash", "-c", "sleep 30 & sleep 30 & wait"];
      const child = spawn(file, args, { stdio: "ignore" });
      const ended = new Promise((resolve) => child.once("exit", (_, signal) => resolve(signal)));
      await expect.poll(() => group.processes()?.length).toBe(3);
      expect(readFileSync(`/proc/${child.pid}/cgroup`, "utf8")).toContain(`0::/sandlot/${fleet}/one\n`);
      expect(groups.findGroups()).toEqual(["one"]);
      expect(group.killExcept([child.pid ?? 0])).toHaveLength(2);
      await ended;
    } finally {
      group.killExcept([]);
      await group.release();
    }
    expect(existsSync(join(mountPoint, "sandlot", fleet))).toBe(false);
  });
});
