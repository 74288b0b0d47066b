/**
 * Killed before each file system call of taking, restoring, seeding and collecting, or without room on the disk from each
 * one on: afterwards everything stored is whole, and repeating the job completes it. `SANDLOT_EVERY_CALL=1` tries every
 * call; otherwise it is some of those that change the disk. A call that only reads leaves it as the one before has.
 */

import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import type { RestoreTarget } from "../../../src/backend/checkpoints.ts";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { collect } from "../../../src/host/checkpoints/collect/collect.ts";
import { threadPathsOf } from "../../../src/host/checkpoints/layout.ts";
import { readRecords } from "../../../src/host/checkpoints/records.ts";
import { verify } from "../../../src/host/checkpoints/restore/check.ts";
import { restore } from "../../../src/host/checkpoints/restore/restore.ts";
import { seed } from "../../../src/host/checkpoints/seed/seed.ts";
import { type TakeRequest, take } from "../../../src/host/checkpoints/take/take.ts";
import { contextAt } from "./context.ts";
import { fill, Ground } from "./ground.ts";
import { treeLines } from "./tree-lines.ts";

const EVERY = process.env.SANDLOT_EVERY_CALL === "1";
const usual = { cause: "requested", generation: null, environment: null, writers: "none" } as const;
const plain = { ...usual, label: null, leftOut: null, verify: false, requestId: null };
/** What is tested is not the disk. */
const MEMORY = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
/** Of each job, without `SANDLOT_EVERY_CALL`. */
const KILLS = 6;
const TIMEOUT_MS = EVERY ? 3_600_000 : 120_000;
let aside = "";

beforeAll(async () => {
  aside = mkdtempSync(join(tmpdir(), "sandlot-crash-"));
  await build({
    entryPoints: [new URL("crash-child.ts", import.meta.url).pathname],
    outfile: join(aside, "child.mjs"),
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node22.18",
    conditions: ["sandlot-source"],
    banner: { js: 'import { createRequire as r } from "node:module"; const require = r(import.meta.url);' },
    logLevel: "error",
  });
  process.umask(0);
});
afterAll(() => rmSync(aside, { recursive: true, force: true }));

interface Job {
  readonly name: "take" | "restore" | "seed" | "collect";
  readonly args: readonly unknown[];
}

type Fault = "kill" | "full";

interface Run {
  readonly isHit: boolean;
  /** What each call of a job that was not killed does to the disk (`Effect`). */
  readonly calls: string;
}

/** On a full disk a job fails with one of these; a collection tells its problem. */
const FULL: Readonly<Record<Job["name"], RegExp>> = {
  take: /^disk_limit_exceeded$/,
  restore: /^(disk_limit_exceeded|restore_incomplete)$/,
  seed: /^disk_limit_exceeded$/,
  collect: /cannot be collected: .*no space left/,
};

/** Runs a job in a process of its own, which meets the fault at a call; one that never comes is none. */
function run(root: string, job: Job, fault: Fault, call: number): Run {
  const args = [join(aside, "child.mjs"), root, JSON.stringify(job), fault, String(call)];
  const { signal, status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (signal === "SIGKILL") return { isHit: true, calls: "" };
  expect({ call, signal, status, stderr }).toMatchObject({ signal: null, status: 0 });
  const { calls, error } = JSON.parse(stdout) as { calls: string; error: string | null };
  const isHit = fault === "full" && calls.indexOf("+", call - 1) >= 0;
  if (isHit) expect(error).toMatch(FULL[job.name]);
  else expect(error).toBe(null);
  return { isHit, calls };
}

/** Runs a job once whole, and then with the fault at each of its calls; `check` looks at what is left each time. */
async function atEachCall(
  fault: Fault,
  prepare: (ground: Ground) => Promise<Job>,
  check: (ground: Ground, job: Job) => Promise<void>,
): Promise<void> {
  const at = async (call: number): Promise<Run> => {
    await using ground = new Ground({}, mkdtempSync(join(MEMORY, "sandlot-crash-")));
    const job = await prepare(ground);
    try {
      const ran = run(ground.root, job, fault, call);
      await check(ground, job);
      return ran;
    } catch (error) {
      throw new Error(`${fault} at call ${call}`, { cause: error });
    }
  };
  const { calls } = await at(Number.MAX_SAFE_INTEGER);
  const effects = fault === "full" ? "+" : EVERY ? "+-." : "+-";
  const every = [...calls].flatMap((effect, before) => (effects.includes(effect) ? [before + 1] : []));
  const wanted = EVERY ? every : sample(every);
  let hits = 0;
  for (const call of wanted) if ((await at(call)).isHit) hits++;
  console.log(`${calls.length} calls, ${fault} at ${hits} of them`);
  // A file whose time is in doubt is read once more, so a run may have a few calls fewer.
  expect(hits).toBeGreaterThanOrEqual(wanted.length * 0.9);
}

/** Evenly, from a place that differs between runs. */
function sample(calls: readonly number[]): readonly number[] {
  const stride = Math.max(1, calls.length / KILLS);
  const first = Math.random() * stride;
  const picked = Array.from({ length: Math.min(KILLS, calls.length) }, (_, at) => Math.floor(first + at * stride));
  return picked.flatMap((at) => calls[at] ?? []);
}

function back(checkpoint: string): RestoreTarget {
  return { checkpoint, requestId: `back to ${checkpoint}`, as: "restore" };
}

function fillSmall(home: string): void {
  fill(home, 4);
  const work = join(home, "workspace");
  symlinkSync("d0", join(work, "link"));
  linkSync(join(work, "d0", "f0.txt"), join(work, "hard"));
}

function breakSome(home: string): void {
  const work = join(home, "workspace");
  rmSync(join(work, "d0"), { recursive: true });
  writeFileSync(join(work, "d0"), "file");
  rmSync(join(work, "hard"));
  writeFileSync(join(work, "d1", "f1.txt"), "changed");
  chmodSync(join(work, "d1"), 0o500);
  renameSync(join(work, "d2"), join(work, "moved"));
}

async function expectWhole(ground: Ground, thread = "t1"): Promise<void> {
  const { damaged } = await verify(contextAt(ground.root), ground.owner(thread), null);
  expect(damaged).toEqual([]);
}

async function expectClean(ground: Ground): Promise<void> {
  const problems: string[] = [];
  await collect(contextAt(ground.root), (problem) => problems.push(problem));
  expect(problems).toEqual([]);
  const left = readdirSync(join(ground.root, "checkpoints"), { recursive: true, encoding: "utf8" });
  expect(left.filter((name) => name.includes("draft"))).toEqual([]);
  await expectWhole(ground);
}

function interrupted(
  what: string,
  prepare: (ground: Ground) => Promise<Job>,
  check: (ground: Ground, job: Job) => Promise<void>,
): void {
  test(`killed while ${what}`, () => atEachCall("kill", prepare, check), TIMEOUT_MS);
  test(`on a full disk while ${what}`, () => atEachCall("full", prepare, check), TIMEOUT_MS);
}

interrupted(
  "taking",
  async (ground) => {
    fillSmall(await ground.home());
    return { name: "take", args: [ground.owner(), plain] };
  },
  async (ground) => {
    await expectWhole(ground);
    const taken = await take(contextAt(ground.root), ground.owner(), plain);
    if (taken.kind === "nothing") throw new Error("the thread has files");
    const { directory } = threadPathsOf(ground.root, ground.owner().user, ground.owner().thread);
    expect(readRecords(directory)).toHaveLength(1);
    await expectClean(ground);
  },
);

interrupted(
  "taking the second one",
  async (ground) => {
    const home = await ground.home();
    fillSmall(home);
    await take(contextAt(ground.root), ground.owner(), plain);
    writeFileSync(join(home, "workspace", "d1", "f1.txt"), "changed");
    return { name: "take", args: [ground.owner(), { ...plain, label: "mine", requestId: "r1" }] };
  },
  async (ground, { args }) => {
    await expectWhole(ground);
    const { directory } = threadPathsOf(ground.root, ground.owner().user, ground.owner().thread);
    const before = readRecords(directory);
    expect(before.length).toBeGreaterThan(0);
    await take(contextAt(ground.root), ground.owner(), args[1] as TakeRequest);
    const after = readRecords(directory);
    expect(after.map(({ label }) => label)).toEqual([null, "mine"]);
    expect(after.slice(0, before.length)).toEqual(before);
    const home = ground.path(ground.owner());
    const state = treeLines(home);
    await expectClean(ground);
    writeFileSync(join(home, "workspace", "d1", "f1.txt"), "changed again");
    await restore(contextAt(ground.root), ground.spot(), back("mine"), null);
    expect(treeLines(home)).toEqual(state);
  },
);

interrupted(
  "restoring",
  async (ground) => {
    const home = await ground.home();
    const context = contextAt(ground.root);
    fillSmall(home);
    await take(context, ground.owner(), { ...plain, label: "before" });
    writeFileSync(join(ground.root, "before.json"), JSON.stringify(treeLines(home)));
    breakSome(home);
    writeFileSync(join(ground.root, "broken.json"), JSON.stringify(treeLines(home)));
    const { id } = await ground.checkpoints.find(ground.owner(), "before");
    return { name: "restore", args: [ground.spot(), { checkpoint: id, requestId: "r1", as: "restore" }] };
  },
  async (ground, { args }) => {
    const [spot, target] = args as [WorkspaceSpot, RestoreTarget];
    const [context, owner] = [contextAt(ground.root), ground.owner()];
    const home = ground.path(owner);
    const state = (name: string) => JSON.parse(readFileSync(join(ground.root, name), "utf8"));
    await expectWhole(ground);
    const fenced = readdirSync(join(ground.root, "homes", threadKeyOf(spot.user, spot.thread)));
    const isFenced = fenced.some((name) => /^restore\.[0-9a-f]{16}/.test(name));
    expect(await ground.checkpoints.unfinished()).toEqual(isFenced ? [{ owner, target }] : []);
    if (isFenced)
      await expect(ground.workspaces.locate(spot, { make: true })).rejects.toMatchObject({
        code: "restore_incomplete",
      });
    const restored = await restore(context, spot, target, null);
    expect(treeLines(home)).toEqual(state("before.json"));
    expect((await ground.checkpoints.outcome(owner, "r1"))?.checkpoint.id).toBe(restored.checkpoint.id);
    expect(await ground.checkpoints.unfinished()).toEqual([]);
    (await ground.workspaces.locate(spot, { make: true }))?.close();
    await expectClean(ground);
    // What was there before is not lost.
    await restore(context, ground.spot(), back(restored.safety.id), null);
    expect(treeLines(home)).toEqual(state("broken.json"));
  },
);

interrupted(
  "forking",
  async (ground) => {
    fillSmall(await ground.home());
    return { name: "seed", args: [{ kind: "thread", owner: ground.owner() }, ground.owner("fork")] };
  },
  async (ground) => {
    const [from, to] = [ground.owner(), ground.owner("fork")];
    await expectWhole(ground);
    await expectWhole(ground, "fork");
    const there = await ground.workspaces.locate(to);
    there?.close();
    // All or nothing.
    if (there === null) await seed(contextAt(ground.root), { kind: "thread", owner: from }, to, null);
    expect(treeLines(ground.path(to))).toEqual(treeLines(ground.path(from)));
    expect(await ground.take(to)).toMatchObject({ kind: "unchanged" });
    await expectClean(ground);
  },
);

interrupted(
  "collecting after a purge",
  async (ground) => {
    const context = contextAt(ground.root);
    const other = ground.owner("t2");
    fillSmall(await ground.home());
    await take(context, ground.owner(), plain);
    fillSmall(await ground.home(other));
    writeFileSync(join(ground.path(other), "workspace", "secret"), "of the purged thread");
    await take(context, other, plain);
    await ground.workspaces.purge(ground.spot(other));
    return { name: "collect", args: [] };
  },
  async (ground) => {
    await expectWhole(ground);
    await expectClean(ground);
    const found = spawnSync("grep", ["-r", "of the purged thread", join(ground.root, "checkpoints")]);
    expect(found.status).toBe(1);
    expect(await ground.take()).toMatchObject({ kind: "unchanged" });
  },
);

interrupted(
  "collecting what bounds push out",
  async (ground) => {
    const home = await ground.home();
    fillSmall(home);
    for (let at = 0; at < 7; at++) {
      writeFileSync(join(home, "workspace", "f"), `version ${at}`);
      await take(contextAt(ground.root), ground.owner(), { ...plain, label: at === 1 ? "mine" : null });
    }
    return { name: "collect", args: [{ threadCheckpointsMax: 5 }] };
  },
  async (ground) => {
    const { directory } = threadPathsOf(ground.root, ground.owner().user, ground.owner().thread);
    const context = contextAt(ground.root, { threadCheckpointsMax: 5 });
    await expectWhole(ground);
    const problems: string[] = [];
    await collect(context, (problem) => problems.push(problem));
    expect(problems).toEqual([]);
    const records = readRecords(directory);
    expect(records).toHaveLength(5);
    expect(records[0]).toMatchObject({ label: "mine", parent: null });
    for (const [at, { parent }] of records.entries()) expect(parent).toBe(records[at - 1]?.id ?? null);
    await expectClean(ground);
    const home = ground.path(ground.owner());
    await restore(context, ground.spot(), back("mine"), null);
    expect(readFileSync(join(home, "workspace", "f"), "utf8")).toBe("version 1");
  },
);
