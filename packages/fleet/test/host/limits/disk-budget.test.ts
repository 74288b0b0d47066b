/**
 * Disk budgets where the file system has none: the API refuses, writers are stopped, and the test measures with real
 * writers on a real disk how far a writer gets past the budget.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { appendFile, link, mkdir, mkdtemp, rename, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { measureTree } from "../../../src/host/limits/disk/measure.ts";
import { type DiskBudget, DiskWatcher } from "../../../src/host/limits/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const MEGABYTE = 1024 * 1024;
/**
 * How far a writer may get past its budget here. The disk of a test machine takes a few gigabytes per second at most.
 */
const OVERSHOOT_MAX_BYTES = 1024 * MEGABYTE;

describe("disk budgets", { timeout: 60_000 }, () => {
  let place: string;
  let watcher: DiskWatcher;
  let writers: ChildProcess[];

  beforeEach(async () => {
    place = await mkdtemp(join(tmpdir(), "sandlot-disk-"));
    watcher = new DiskWatcher({ world: systemWorld() });
    writers = [];
  });
  afterEach(async () => {
    for (const writer of writers) writer.kill("SIGKILL");
    watcher.close();
    await rm(place, { recursive: true, force: true });
  });

  const write = (script: string) => {
    const writer = spawn("/bin/sh", ["-c", script], { cwd: place, stdio: "ignore", detached: true });
    writers.push(writer);
    return writer;
  };
  const ended = (child: ChildProcess) =>
    new Promise<string | number | null>((resolve) => child.once("exit", (code, signal) => resolve(signal ?? code)));
  const kill = (child: ChildProcess) => process.kill(-(child.pid ?? 0), "SIGKILL");

  function watch(options: { maxBytes?: number; maxFiles?: number; stop?: () => void; pids?: () => number[] }) {
    const stops: number[] = [];
    const problems: unknown[] = [];
    const budget: DiskBudget = watcher.watch({
      place: () => place,
      maxBytes: options.maxBytes ?? 1024 * MEGABYTE,
      maxFiles: options.maxFiles ?? 10_000,
      ...(options.pids && { processes: options.pids }),
      onExceeded: ({ bytes }) => {
        stops.push(bytes);
        options.stop?.();
      },
      onProblem: (error) => problems.push(error),
    });
    return { budget, stops, problems };
  }

  it("stops a writer that runs as fast as the disk, and says by how much it got past", async () => {
    const writer = write("dd if=/dev/zero of=big bs=1M count=4000 2>/dev/null");
    const { budget, problems } = watch({ maxBytes: 64 * MEGABYTE, stop: () => kill(writer) });
    expect(await ended(writer)).toBe("SIGKILL");
    const { bytes } = await measureTree(place, 100);
    const past = bytes - 64 * MEGABYTE;
    console.log(`disk: one fast writer got ${(past / MEGABYTE).toFixed(0)} MB past a budget of 64 MB`);
    expect(past).toBeGreaterThan(0);
    expect(past).toBeLessThan(OVERSHOOT_MAX_BYTES);
    expect(budget.exceeded).toBe(true);
    expect(problems).toEqual([]);
  });

  it("leaves a writer alone without a watcher", async () => {
    const writer = write("dd if=/dev/zero of=big bs=1M count=200 2>/dev/null");
    expect(await ended(writer)).toBe(0);
    expect((await measureTree(place, 100)).bytes).toBeGreaterThan(190 * MEGABYTE);
  });

  it("stops one that makes small files", async () => {
    const writer = write("i=0; while :; do : >f$i; i=$((i+1)); done");
    const { stops } = watch({ maxFiles: 2_000, stop: () => kill(writer) });
    expect(await ended(writer)).toBe("SIGKILL");
    const { files } = await measureTree(place, 1_000_000);
    console.log(`disk: a maker of files got ${files - 2_000} past a budget of 2000 files`);
    expect(files).toBeLessThan(100_000);
    expect(stops).toHaveLength(1);
  });

  it("is not misled by what others free on the same disk", async () => {
    const ballast = `${place}-ballast`;
    execFileSync("fallocate", ["-l", "300M", ballast]);
    onTestFinished(() => rm(ballast, { force: true }));
    const writer = write("sleep 0.5; for i in 1 2 3 4 5 6; do head -c 8M /dev/zero > c$i; done; exec sleep 60");
    watch({ maxBytes: 16 * MEGABYTE, stop: () => kill(writer) });
    await watcher.look();
    await rm(ballast);
    const from = performance.now();
    expect(await ended(writer)).toBe("SIGKILL");
    // Without need the next measurement would come after half a minute.
    expect(performance.now() - from).toBeLessThan(15_000);
  });

  it("counts what has no name any more but is still open", async () => {
    const writer = write("exec 3>hidden; rm hidden; dd if=/dev/zero bs=1M count=4000 >&3 2>/dev/null");
    watch({ maxBytes: 64 * MEGABYTE, stop: () => kill(writer), pids: () => [writer.pid ?? 0] });
    expect(await ended(writer)).toBe("SIGKILL");
    expect((await measureTree(place, 100)).bytes).toBeLessThan(MEGABYTE);
  });

  it("refuses API writes that do not fit, counting those under way and those that have come", async () => {
    const { budget } = watch({ maxBytes: 10 * MEGABYTE, maxFiles: 3 });
    const api = (name: string, bytes: number) =>
      budget.admit(name, bytes, 1, () => writeFile(join(place, name), Buffer.alloc(bytes, 1)));
    await watcher.look();
    let land = () => {};
    const slow = budget.admit("slow", 6 * MEGABYTE, 1, () => new Promise<void>((resolve) => (land = resolve)));
    await expect(api("b", 6 * MEGABYTE)).rejects.toMatchObject({ code: "disk_limit_exceeded" });
    await budget.measure();
    await expect(api("b", 6 * MEGABYTE)).rejects.toMatchObject({ code: "disk_limit_exceeded" });
    await writeFile(join(place, "slow"), Buffer.alloc(6 * MEGABYTE, 1));
    land();
    await slow;
    await expect(api("b", 6 * MEGABYTE)).rejects.toMatchObject({ code: "disk_limit_exceeded" });
    await api("b", MEGABYTE);
    await api("c", 0);
    await expect(api("d", 0)).rejects.toThrow("no room left");
  });

  it("does not count an upload twice that is measured on its way", async () => {
    const { budget } = watch({ maxBytes: 10 * MEGABYTE });
    await budget.admit("upload", 0, 1, async (grow) => {
      for (let part = 0; part < 9; part += 1) {
        await grow(MEGABYTE);
        await appendFile(join(place, "upload"), Buffer.alloc(MEGABYTE, 1));
        await budget.measure();
      }
    });
    await expect(budget.admit("more", 2 * MEGABYTE, 1, async () => {})).rejects.toThrow("no room left");
  });

  it("keeps within it what is on its way to the disk while it is measured", async () => {
    const { budget, stops } = watch({ maxBytes: 10 * MEGABYTE });
    const file = join(place, "upload");
    let written = Promise.resolve();
    const upload = budget.admit("upload", 0, 1, async (grow) => {
      for (let part = 0; part < 12; part += 1) {
        await grow(MEGABYTE - 1);
        const before = written;
        // The writer is a part ahead of the disk.
        written = before.then(() => sleep(10)).then(() => appendFile(file, Buffer.alloc(MEGABYTE - 1, 1)));
        await before;
        await budget.measure();
      }
    });
    await expect(upload).rejects.toThrow("no room left");
    await written;
    await budget.measure();
    expect(stops).toEqual([]);
    expect((await measureTree(place, 100)).bytes).toBeGreaterThan(9 * MEGABYTE);
  });

  it("does not count a file twice that is written again, nor one that never came", async () => {
    const { budget } = watch({ maxBytes: 10 * MEGABYTE });
    for (let round = 0; round < 5; round += 1)
      await budget.admit("same", 4 * MEGABYTE, 0, () => writeFile(join(place, "same"), Buffer.alloc(4 * MEGABYTE, 1)));
    const failing = () => Promise.reject(new Error("the daemon is gone"));
    for (let round = 0; round < 5; round += 1)
      await expect(budget.admit("never", 4 * MEGABYTE, 1, failing)).rejects.toThrow("gone");
  });

  it("allows again once files were removed, and stops again only for what grows", async () => {
    await writeFile(join(place, "big"), Buffer.alloc(4 * MEGABYTE, 1));
    const { budget, stops } = watch({ maxBytes: 2 * MEGABYTE });
    // The test triggers each measurement from here on: one in the middle of a write would be one too many.
    watcher.close();
    await budget.measure();
    expect(budget.exceeded).toBe(true);
    await expect(budget.admit("/x", 1, 1, async () => {})).rejects.toThrow("no room left");
    await budget.measure();
    expect(stops).toHaveLength(1);
    await writeFile(join(place, "more"), Buffer.alloc(MEGABYTE, 1));
    await budget.measure();
    expect(stops).toHaveLength(2);
    await rm(join(place, "big"));
    await budget.measure();
    expect(budget.exceeded).toBe(false);
    await budget.admit("/x", 1000, 1, async () => {});
  });

  it("does not measure while nothing is written", async () => {
    const { budget } = watch({ maxBytes: 1024 * MEGABYTE });
    await watcher.look();
    let measured = 0;
    const measure = budget.measure.bind(budget);
    budget.measure = () => {
      measured += 1;
      return measure();
    };
    for (let round = 0; round < 20; round += 1) await watcher.look();
    expect(measured).toBe(0);
  });

  it("goes on when a workspace moves away under it, and finds it where it is then", async () => {
    const home = place;
    const { budget, problems } = watch({ maxBytes: MEGABYTE });
    await watcher.look();
    await rename(home, `${home}-slot`);
    await watcher.look();
    expect(budget.exceeded).toBe(false);
    await writeFile(join(`${home}-slot`, "big"), Buffer.alloc(3 * MEGABYTE, 1));
    place = `${home}-slot`;
    await expect.poll(() => budget.exceeded).toBe(true);
    expect(problems).toEqual([]);
  });

  it("ends with its last budget", async () => {
    const { budget, problems } = watch({});
    await watcher.look();
    budget.close();
    budget.close();
    await rm(place, { recursive: true });
    await watcher.look();
    expect(problems).toEqual([]);
  });
});

describe("measuring a tree", () => {
  let place: string;
  beforeEach(async () => {
    place = await mkdtemp(join(tmpdir(), "sandlot-measure-"));
  });
  // Node's own `rm` cannot remove entries deeper than the longest path.
  afterEach(() => void execFileSync("rm", ["-rf", place]));

  it("counts blocks and not sizes, links once, and follows nothing", async () => {
    await writeFile(join(place, "real"), Buffer.alloc(MEGABYTE, 1));
    await link(join(place, "real"), join(place, "again"));
    await writeFile(join(place, "sparse"), "");
    await truncate(join(place, "sparse"), 1024 * MEGABYTE);
    await symlink("/usr", join(place, "usr"));
    await mkdir(join(place, "a/b"), { recursive: true });
    const usage = await measureTree(place, 100);
    expect(usage.files).toBe(5);
    expect(usage.bytes).toBeGreaterThanOrEqual(MEGABYTE);
    expect(usage.bytes).toBeLessThan(1.1 * MEGABYTE);
    expect(usage.complete).toBe(true);
  });

  it("ends early when there is more than is allowed", async () => {
    await Promise.all(Array.from({ length: 300 }, (_, index) => writeFile(join(place, `f${index}`), "")));
    const usage = await measureTree(place, 100);
    expect(usage.complete).toBe(false);
    expect(usage.files).toBeLessThan(300);
  });

  const deep = async (name: string, levels: number) => {
    const script = `n=$(printf '${name}%.0s' {1..200}); for ((i = 0; i < ${levels}; i++)); do mkdir $n && cd $n; done; head -c 1M /dev/zero > big`;
    const child = spawn("/bin/bash", ["-c", script], { cwd: place });
    await new Promise((resolve) => child.once("exit", resolve));
  };

  it("measures what is too deep for a path", async () => {
    await deep("d", 30);
    const usage = await measureTree(place, 100);
    expect(usage).toMatchObject({ files: 31, complete: true, settled: true });
    expect(usage.bytes).toBeGreaterThanOrEqual(MEGABYTE);
  });

  it("reports a tree that is too deep", async () => {
    await deep("d", 300);
    expect((await measureTree(place, 1_000)).complete).toBe(false);
  });

  it("counts names that are no text", async () => {
    const name = Buffer.concat([Buffer.from(`${place}/`), Buffer.from([0xff, 0xfe])]);
    await mkdir(name);
    await writeFile(Buffer.concat([name, Buffer.from("/"), Buffer.from([0xf0])]), Buffer.alloc(MEGABYTE, 1));
    const usage = await measureTree(place, 100);
    expect(usage).toMatchObject({ files: 2, complete: true });
    expect(usage.bytes).toBeGreaterThanOrEqual(MEGABYTE);
  });

  it("takes a missing place for an empty one", async () => {
    expect(await measureTree(join(place, "none"), 10)).toEqual({ bytes: 0, files: 0, complete: true, settled: true });
  });
});
