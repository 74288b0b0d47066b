/** Freezing while files are counted, against processes that are woken meanwhile. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { freeze } from "../../../src/host/limits/disk/freezer.ts";
import { holdStill, stop } from "../../../src/host/limits/disk/hold.ts";
import { stateOf } from "../../../src/host/limits/disk/standstill.ts";
import { findHierarchies } from "../../../src/host/limits/hierarchy.ts";
import { isRoot, world } from "../../backends/local/local-harness.ts";

const { unified, freezer } = findHierarchies();
const canFreeze = isRoot && unified !== null;
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function start(command: string, ...args: string[]): ChildProcess {
  const child = spawn(command, args, { stdio: "ignore", detached: true });
  onTestFinished(() => {
    try {
      process.kill(-(child.pid ?? 0), "SIGKILL");
    } catch {}
  });
  return child;
}

function loop(script: string): number {
  return start("/bin/sh", "-c", `while :; do ${script}; done`).pid ?? 0;
}

/** A tree of processes that write and, all of them, wake every process that they see, which is only each other. */
function wakers(): { readonly pids: () => readonly number[]; readonly written: () => number } {
  const directory = mkdtempSync(join(tmpdir(), "sl-hold-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, "written");
  const one = `while :; do kill -CONT -1; echo x >> ${file}; done`;
  const outer = start("unshare", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", `(${one}) & (${one}) & ${one}`);
  const pids = () => descendantsOf(outer.pid ?? 0);
  return { pids, written: () => statSync(file, { throwIfNoEntry: false })?.size ?? 0 };
}

function descendantsOf(pid: number): readonly number[] {
  const parents = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  const found = [pid];
  for (const one of found)
    for (const name of parents) {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, "latin1");
        if (Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === one) found.push(Number(name));
      } catch {}
    }
  return found.slice(1);
}

async function writing(written: () => number): Promise<void> {
  const before = written();
  await expect.poll(written, { timeout: 20_000 }).toBeGreaterThan(before);
}

/** The groups, in any tree, that freeze these. */
function heldGroups(pids: readonly number[]): readonly string[] {
  const groups = pids.map((pid) => readFileSync(`/proc/${pid}/cgroup`, "latin1")).join("");
  const found = [...groups.matchAll(/^\d+:([^:\n]*):(.*\/sandlot-held-[0-9a-f]+)$/gm)];
  return [...new Set(found.map(([, tree, path]) => join((tree === "" ? unified : freezer) ?? "", path ?? "")))];
}

async function gone(groups: readonly string[]): Promise<void> {
  expect(groups.length).toBeGreaterThan(0);
  await expect.poll(() => groups.filter((group) => existsSync(group)), { timeout: 20_000 }).toEqual([]);
}

const VERSIONS = [
  ["version 2", { unified, freezer: null }],
  ["version 1", { unified: null, freezer }],
] as const;

it.runIf(isRoot).for(VERSIONS)(
  "holds processes that wake each other all the time, by %s",
  async ([, trees], context) => {
    if (trees.unified === null && trees.freezer === null) return context.skip("this machine does not have it");
    const { pids, written } = wakers();
    await writing(written);
    const held = trees.unified === null ? await freeze(pids, world, trees) : await holdStill(pids, world);
    const groups = heldGroups(pids());
    const before = written();
    // Such as a command that arrived meanwhile.
    const waker = start("/bin/sh", "-c", `while kill -CONT ${pids().join(" ")}; do :; done`);
    await wait(300);
    expect(written()).toBe(before);
    expect(waker.exitCode).toBe(null);
    expect(held?.pids).toEqual(expect.arrayContaining([...pids()]));
    expect(held?.release()).toBe(true);
    await writing(written);
    await gone(groups);
  },
);

it.runIf(canFreeze)("says so when something new has run meanwhile, or another hold has taken them", async () => {
  const pids = [loop(":")];
  const held = await freeze(() => pids, world);
  const groups = [...heldGroups(pids)];
  pids.push(loop(":"));
  expect(held?.release()).toBe(false);
  const first = await freeze(() => pids, world);
  groups.push(...heldGroups(pids));
  const second = await freeze(() => pids, world);
  groups.push(...heldGroups(pids));
  expect([first?.release(), second?.pids.toSorted()]).toEqual([false, pids.toSorted()]);
  expect(groups).toHaveLength(3);
  second?.release();
  await gone(groups);
});

it.runIf(canFreeze)("lets go when the process that holds is killed", async () => {
  const { pids, written } = wakers();
  await writing(written);
  const holder = start(
    process.execPath,
    "--conditions=sandlot-source",
    "--input-type=module",
    "-e",
    HOLDING,
    pids().join(" "),
  );
  await expect.poll(() => heldGroups(pids()), { timeout: 20_000 }).toHaveLength(1);
  await wait(500);
  const groups = heldGroups(pids());
  const before = written();
  await wait(200);
  expect(written()).toBe(before);
  process.kill(holder.pid ?? 0, "SIGKILL");
  await writing(written);
  await gone(groups);
});

const source = new URL("../../../src/", import.meta.url);
const HOLDING = `
  const { freeze } = await import(${JSON.stringify(`${source}host/limits/disk/freezer.ts`)});
  const { systemWorld } = await import(${JSON.stringify(`${source}world/system-world.ts`)});
  const pids = process.argv[1].split(" ").map(Number);
  globalThis.held = await freeze(() => pids, systemWorld());
  setInterval(() => {}, 1_000);
`;

it("by signals: says so when a process does not stay still", async () => {
  const writer = loop(":");
  const held = await stop(() => [writer], world);
  expect(held?.release()).toBe(true);
  const again = await stop(() => [writer], world);
  process.kill(writer, "SIGCONT");
  await wait(50);
  expect(again?.release()).toBe(false);
  loop(`kill -CONT ${writer}`);
  process.kill(writer, "SIGSTOP");
  await expect.poll(() => stateOf(writer)?.state, { timeout: 20_000 }).not.toBe("T");
  expect(await stop(() => [writer], world)).toBeNull();
});
