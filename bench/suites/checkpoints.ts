/**
 * The suite `checkpoints`: taking and restoring checkpoints of 10,000 files and 54 MB, against the same walk with
 * `lstat` and against `cp -a`, round by round. `git add -A` and `restic` are printed beside it.
 */

import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { installPackages } from "../../scripts/debian-packages.mjs";
import { interleave, type Subject, type Timings } from "../measuring/interleave.ts";
import { compare, type Result, resultOf } from "../measuring/result.ts";
import { median } from "../measuring/statistics.ts";
import { eventLoop } from "./checkpoints/event-loop.ts";
import { BYTES, FILES, planOf, Stage, walk } from "./checkpoints/stage.ts";
import { undoInFleet } from "./checkpoints/undo-in-fleet.ts";
import type { Suite, SuiteOptions } from "./suite.ts";

const CHANGED = 100;
const CHANGED_BYTES = 10_240;
/** Allowed beside the walks of an undo: two renames, the drafts, and waiting for the disk. */
const UNDO_EXTRA_NS = 50_000_000;

type Part = (stage: Stage, options: SuiteOptions) => AsyncGenerator<Result>;
const PARTS: Readonly<Record<string, Part>> = {
  take: takes,
  first: firstTake,
  restore: restores,
  undo,
  fleet: undoInFleet,
  "event-loop": eventLoop,
  others,
};

export const suite: Suite = {
  about: [
    `${FILES.toLocaleString("en")} files of ${BYTES.toLocaleString("en")} bytes in 100 directories, the workspace at home, the worker running.`,
    "A take includes the way to the worker and back, and waits for the disk; `cp -a` does not.",
  ].join("\n"),
  parts: Object.keys(PARTS),
  async *run(options) {
    await using stage = await Stage.open();
    for (const [name, part] of Object.entries(PARTS))
      if (options.only?.includes(name) !== false) yield* part(stage, options);
  },
};

function sides(timings: readonly Timings[], count: number): Timings[] {
  if (timings.length !== count) throw new Error("A side is missing.");
  return [...timings];
}

const NONE: Timings = { name: "", samples: [], rounds: [] };

async function* takes(stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  await stage.take();
  await stage.settle();
  await stage.take();
  const walking: Subject = { name: "the same walk with lstat", run: () => walk(stage.home) };
  const unchanged: Subject = { name: "unchanged", run: async () => void (await stage.take()) };
  const [same = NONE, walked = NONE] = sides(await interleave([unchanged, walking], planOf(options)), 2);
  yield compare({ name: "unchanged", limit: 2, about: "nothing is read or stored" }, same, walked);

  const files = Array.from({ length: CHANGED }, (_, at) => join(stage.home, "workspace", `d${at}`, `f${at}`));
  const copies = join(stage.root, "copies");
  const change = async () => {
    for (const file of files) writeFileSync(file, stage.content(CHANGED_BYTES));
    await stage.settle();
  };
  const changed: Subject = { name: "100 changed files", prepare: change, run: async () => void (await stage.take()) };
  const copying: Subject = {
    name: "copying them",
    prepare: async () => void mkdirSync(copies),
    run: () => {
      for (const [at, file] of files.entries()) cpSync(file, join(copies, String(at)));
    },
    settle: async () => rmSync(copies, { recursive: true }),
  };
  const timings = await interleave([changed, walking, copying], planOf(options));
  const [taken = NONE, alone = NONE, copied = NONE] = sides(timings, 3);
  const allowed = alone.rounds.map((time, round) => 2 * time + 1.5 * (copied.rounds[round] ?? Number.NaN));
  const perRound = taken.rounds.map((time, round) => time / (allowed[round] ?? Number.NaN));
  const about = "against twice the walk and 1.5 times copying the files";
  const whole = median(taken.samples) / (2 * median(alone.samples) + 1.5 * median(copied.samples));
  yield resultOf({ name: "changed-100", limit: 1, about }, "ns", [taken, alone, copied], perRound, whole);
}

function copyOf(stage: Stage): Subject {
  const to = join(stage.root, "cp");
  return {
    name: "cp -a",
    run: () => void execFileSync("cp", ["-a", join(stage.home, "workspace"), to]),
    settle: async () => rmSync(to, { recursive: true }),
  };
}

async function* firstTake(stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  const first: Subject = {
    name: "the first one",
    prepare: async () => rmSync(join(stage.root, "fleet", "checkpoints"), { recursive: true, force: true }),
    run: async () => void (await stage.take()),
  };
  const [taken = NONE, copied = NONE] = sides(await interleave([first, copyOf(stage)], planOf(options)), 2);
  yield compare({ name: "first", limit: 1.5, about: "everything is read, stored, and on the disk" }, taken, copied);
}

async function* restores(stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  const full = await stage.take();
  const work = join(stage.home, "workspace");
  const source = join(stage.root, "source");
  execFileSync("cp", ["-a", work, source]);
  const restoring: Subject = {
    name: "restore into nothing",
    prepare: async () => {
      rmSync(work, { recursive: true });
      mkdirSync(work);
      await stage.take();
    },
    run: () => stage.restore(full, "restore"),
  };
  const copying = (name: string, isSynchronized: boolean): Subject => ({
    name,
    run: () => {
      execFileSync("cp", ["-a", source, join(stage.root, "cp")]);
      if (isSynchronized) execFileSync("sync", ["-f", stage.root]);
    },
    settle: async () => rmSync(join(stage.root, "cp"), { recursive: true }),
  });
  const subjects = [restoring, copying("cp -a", false), copying("cp -a; sync -f", true)];
  const timings = await interleave(subjects, planOf(options));
  const [restored = NONE, copied = NONE, synchronized = NONE] = sides(timings, 3);
  const about = "with the safety checkpoint, the second walk, and waiting for the disk";
  yield compare({ name: "restore", limit: 1.3, about }, restored, copied);
  yield compare({ name: "restore-durable", limit: null, about: "both wait for the disk" }, restored, synchronized);
  rmSync(source, { recursive: true });
}

async function* undo(stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  const file = join(stage.home, "workspace", "d7", "f7");
  await stage.settle();
  await stage.take();
  let before = "";
  const undoing: Subject = {
    name: "undo of one file",
    prepare: async () => {
      before = await stage.take();
      writeFileSync(file, stage.content(BYTES));
      await stage.settle();
      await stage.take();
    },
    run: () => stage.restore(before, "undo"),
  };
  const walking: Subject = { name: "the same walk with lstat", run: () => walk(stage.home) };
  const [undone = NONE, walked = NONE] = sides(await interleave([undoing, walking], planOf(options)), 2);
  const perRound = undone.rounds.map(
    (time, round) => time / (3 * (walked.rounds[round] ?? Number.NaN) + UNDO_EXTRA_NS),
  );
  const whole = median(undone.samples) / (3 * median(walked.samples) + UNDO_EXTRA_NS);
  const about = "against three walks and 50 ms; ending the sandbox and binding the next one are not in it";
  yield resultOf({ name: "undo-one-file", limit: 1, about }, "ns", [undone, walked], perRound, whole);
}

/** For comparison: programs that keep versions of a directory. */
async function* others(stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  const plan = { ...planOf(options), rounds: options.quick ? 1 : 3 };
  const work = join(stage.home, "workspace");
  const unchanged: Subject = { name: "Sandlot, unchanged", run: async () => void (await stage.take()) };
  const run = (program: string, args: readonly string[], env: NodeJS.ProcessEnv) => {
    execFileSync(program, args, { cwd: work, env: { ...process.env, ...env }, stdio: "ignore" });
  };
  const repository = join(stage.root, "git");
  const git = { GIT_DIR: repository, GIT_WORK_TREE: work };
  const init = async () => {
    rmSync(repository, { recursive: true, force: true });
    run("git", ["init", "-q"], git);
  };
  const subjects: Subject[] = [
    unchanged,
    { name: "git add -A, first", prepare: init, run: () => run("git", ["add", "-A"], git) },
    { name: "git add -A, unchanged", run: () => run("git", ["add", "-A"], git) },
  ];
  if (hasRestic()) {
    const backup = join(stage.root, "restic");
    const restic = { RESTIC_REPOSITORY: backup, RESTIC_PASSWORD: "bench" };
    const fresh = async () => {
      rmSync(backup, { recursive: true, force: true });
      run("restic", ["init"], restic);
    };
    const save = () => run("restic", ["backup", "."], restic);
    subjects.push(
      { name: "restic backup, first", prepare: fresh, run: save },
      { name: "restic backup, unchanged", run: save },
    );
  } else console.log("restic is missing, and could not be installed: its lines are left out\n");
  const [own = NONE, ...rest] = await interleave(subjects, plan);
  for (const other of rest)
    yield compare({ name: other.name.replaceAll(/[^a-z]+/g, "-"), limit: null, about: "for comparison" }, other, own);
}

function hasRestic(): boolean {
  const works = () => spawnSync("restic", ["version"]).status === 0;
  return works() || (process.getuid?.() === 0 && installPackages(["restic"]) && works());
}
