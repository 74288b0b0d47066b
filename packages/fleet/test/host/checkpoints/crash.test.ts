/**
 * Killed before a file system call of taking, restoring, seeding and collecting: afterwards everything stored is whole,
 * and repeating the job completes it. `SANDLOT_EVERY_CALL=1` kills before every call, otherwise before some.
 */

import { spawnSync } from "node:child_process";
import { chmodSync, linkSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { collect } from "../../../src/host/checkpoints/collect/collect.ts";
import { threadPathsOf } from "../../../src/host/checkpoints/layout.ts";
import { readRecords } from "../../../src/host/checkpoints/records.ts";
import { verify } from "../../../src/host/checkpoints/restore/check.ts";
import { restore } from "../../../src/host/checkpoints/restore/restore.ts";
import { seed } from "../../../src/host/checkpoints/seed/seed.ts";
import { take } from "../../../src/host/checkpoints/take/take.ts";
import { contextAt } from "./context.ts";
import { describeTree, fill, Ground } from "./ground.ts";

const EVERY = process.env.SANDLOT_EVERY_CALL === "1";
const usual = { cause: "requested", generation: null, environment: null, writers: "none" } as const;
const plain = { ...usual, label: null, verify: false, requestId: null };
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

/** True when the job ended before that call. */
function killed(root: string, name: string, args: readonly unknown[], call: number): boolean {
  const job = JSON.stringify({ name, args });
  const child = spawnSync(process.execPath, [join(aside, "child.mjs"), root, job, String(call)], { encoding: "utf8" });
  if (child.signal === "SIGKILL") return true;
  expect({ call, status: child.status, stderr: child.stderr }).toMatchObject({ status: 0 });
  return false;
}

/** The calls to be killed before: all of them, or a sample that differs between jobs. */
async function atEachCall(stride: number, once: (call: number) => Promise<boolean>): Promise<number> {
  let calls = 0;
  for (let call = 1; await once(call); call += EVERY ? 1 : stride) calls++;
  return calls;
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

test("killed while taking", async () => {
  const calls = await atEachCall(13, async (call) => {
    await using ground = new Ground();
    const home = await ground.home();
    fillSmall(home);
    const wasKilled = killed(ground.root, "take", [ground.owner(), plain], call);
    await expectWhole(ground);
    const taken = await take(contextAt(ground.root), ground.owner(), plain);
    if (taken.kind === "nothing") throw new Error("the thread has files");
    const { directory } = threadPathsOf(ground.root, ground.owner().user, ground.owner().thread);
    expect(readRecords(directory)).toHaveLength(1);
    await expectClean(ground);
    return wasKilled;
  });
  expect(calls).toBeGreaterThan(5);
});

test("killed while restoring", async () => {
  const calls = await atEachCall(89, async (call) => {
    await using ground = new Ground();
    const home = await ground.home();
    const context = contextAt(ground.root);
    fillSmall(home);
    const before = describeTree(home);
    const first = await take(context, ground.owner(), plain);
    breakSome(home);
    const broken = describeTree(home);
    await take(context, ground.owner(), plain);
    const spot = ground.spot();
    const checkpoint = first.kind === "nothing" ? "" : first.checkpoint.id;
    const target = { checkpoint, requestId: "r1", as: "restore" } as const;
    const wasKilled = killed(ground.root, "restore", [spot, target], call);
    await expectWhole(ground);
    const fenced = readdirSync(join(ground.root, "homes", threadKeyOf(spot.user, spot.thread)));
    if (fenced.some((name) => /^restore\.[0-9a-f]/.test(name)))
      await expect(ground.workspaces.locate(spot, { make: true })).rejects.toMatchObject({
        code: "restore_incomplete",
      });
    const restored = await restore(context, spot, target, null);
    expect(describeTree(home)).toEqual(before);
    (await ground.workspaces.locate(spot, { make: true }))?.close();
    await expectClean(ground);
    // What was there before is not lost.
    await restore(context, ground.spot(), { checkpoint: restored.safety.id, requestId: "r2", as: "restore" }, null);
    expect(describeTree(home)).toEqual(broken);
    return wasKilled;
  });
  expect(calls).toBeGreaterThan(2);
});

test("killed while forking", async () => {
  const calls = await atEachCall(113, async (call) => {
    await using ground = new Ground();
    const home = await ground.home();
    fillSmall(home);
    const [from, to] = [ground.owner(), ground.owner("fork")];
    const wasKilled = killed(ground.root, "seed", [{ kind: "thread", owner: from }, to], call);
    await expectWhole(ground);
    await expectWhole(ground, "fork");
    const there = await ground.workspaces.locate(to);
    there?.close();
    // All or nothing.
    if (there === null) await seed(contextAt(ground.root), { kind: "thread", owner: from }, to, null);
    expect(describeTree(ground.path(to))).toEqual(describeTree(home));
    await expectClean(ground);
    return wasKilled;
  });
  expect(calls).toBeGreaterThan(2);
});

test("killed while collecting after a purge", async () => {
  const calls = await atEachCall(7, async (call) => {
    await using ground = new Ground();
    const context = contextAt(ground.root);
    const other = ground.owner("t2");
    fillSmall(await ground.home());
    await take(context, ground.owner(), plain);
    fillSmall(await ground.home(other));
    writeFileSync(join(ground.path(other), "workspace", "secret"), "of the purged thread");
    await take(context, other, plain);
    await ground.workspaces.purge(ground.spot(other));
    const wasKilled = killed(ground.root, "collect", [], call);
    await expectWhole(ground);
    await expectClean(ground);
    const found = spawnSync("grep", ["-r", "of the purged thread", join(ground.root, "checkpoints")]);
    expect(found.status).toBe(1);
    return wasKilled;
  });
  expect(calls).toBeGreaterThan(3);
});
