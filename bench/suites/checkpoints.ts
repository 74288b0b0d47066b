/**
 * The suite `checkpoints`: taking and restoring checkpoints of 10,000 files and 54 MB, against the same walk with
 * `lstat` and against `cp -a`, round by round. `git add -A` and, where it is installed, `restic` are printed beside it.
 */

import { execFileSync, spawnSync } from "node:child_process";
import {
  closeSync,
  constants,
  cpSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Generation, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { threadKeyOf } from "../../packages/fleet/src/backend/labels.ts";
import { DiskCheckpoints } from "../../packages/fleet/src/host/checkpoints/disk-checkpoints.ts";
import { DiskWorkspaces } from "../../packages/fleet/src/host/workspaces/disk-workspaces.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";
import { interleave, type Subject, type Timings } from "../measuring/interleave.ts";
import { compare, type Result, resultOf } from "../measuring/result.ts";
import { median } from "../measuring/statistics.ts";
import type { Suite, SuiteOptions } from "./suite.ts";

const FILES = 10_000;
const BYTES = 5_400;
const CHANGED = 100;
const CHANGED_BYTES = 10_240;
/** Allowed beside the walks of an undo: two renames, the drafts, and waiting for the disk. */
const UNDO_EXTRA_NS = 50_000_000;
/** Longer than the slack of a workspace at home: what was written before it is settled. */
const SETTLE_MS = 120;
const OWNER = { user: "bench" as UserId, thread: "t" as ThreadId };
const USUAL = { cause: "requested", generation: null, environment: null, writers: "none" } as const;

export const suite: Suite = {
  about: [
    `${FILES.toLocaleString("en")} files of ${BYTES.toLocaleString("en")} bytes in 100 directories, the workspace at home, the worker running.`,
    "A take includes the way to the worker and back, and waits for the disk; `cp -a` does not.",
  ].join("\n"),
  async *run(options) {
    await using stage = await Stage.open();
    yield* takes(stage, options);
    yield* firstTake(stage, options);
    yield* restores(stage, options);
    yield* undo(stage, options);
    yield* others(stage, options);
  },
};

class Stage implements AsyncDisposable {
  readonly root = mkdtempSync(join(tmpdir(), "sandlot-bench-checkpoints-"));
  readonly workspaces: DiskWorkspaces;
  readonly checkpoints: DiskCheckpoints;
  readonly home: string;
  readonly signal = new AbortController().signal;
  #generation = 1;
  #serial = 0;

  private constructor() {
    const world = systemWorld();
    const [fleet, account] = [join(this.root, "fleet"), null];
    this.workspaces = new DiskWorkspaces({ root: fleet, account, world });
    this.checkpoints = new DiskCheckpoints({ root: fleet, account, world, options: { freeBytesMin: 0 } });
    this.home = join(fleet, "homes", threadKeyOf(OWNER.user, OWNER.thread), "user-data");
  }

  static async open(): Promise<Stage> {
    const stage = new Stage();
    (await stage.workspaces.locate(OWNER, { make: true }))?.close();
    for (let at = 0; at < FILES; at++) {
      const directory = join(stage.home, "workspace", `d${at % 100}`);
      if (at < 100) mkdirSync(directory);
      writeFileSync(join(directory, `f${at}`), stage.content(BYTES));
    }
    await stage.settle();
    return stage;
  }

  content(bytes: number): Buffer {
    return Buffer.alloc(bytes, `${++this.#serial} `);
  }

  settle(): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  }

  async take(): Promise<string> {
    const taken = await this.checkpoints.take(OWNER, { ...USUAL, signal: this.signal });
    if (taken.kind === "nothing") throw new Error("The workspace is gone.");
    return taken.checkpoint.id;
  }

  async restore(checkpoint: string, as: "restore" | "undo"): Promise<void> {
    const generation = this.#generation++ as Generation;
    const spot = { ...OWNER, sandboxId: "bench" as SandboxId, generation, place: "home" } as const;
    const target = { checkpoint, as, requestId: String(generation) };
    await this.checkpoints.restore(spot, target, null, { signal: this.signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.checkpoints.close();
    this.workspaces.close();
    rmSync(this.root, { recursive: true, force: true });
  }
}

function planOf({ quick }: SuiteOptions) {
  return { rounds: quick ? 3 : 11, batch: 1, timingsPerRound: 1, warmUp: 1 };
}

/** The same calls as a take's walk, and nothing else. */
function walk(path: string): void {
  const root = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  const visit = (descriptor: number) => {
    for (const name of readdirSync(`/proc/self/fd/${descriptor}`, { encoding: "latin1" as "utf8" })) {
      const below = `/proc/self/fd/${descriptor}/${name}`;
      if (!lstatSync(below, { bigint: true }).isDirectory()) continue;
      const child = openSync(below, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
      visit(child);
      closeSync(child);
    }
  };
  visit(root);
  closeSync(root);
}

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
  if (spawnSync("restic", ["version"]).status === 0) {
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
  } else console.log("restic is not installed: its lines are left out\n");
  const [own = NONE, ...rest] = await interleave(subjects, plan);
  for (const other of rest)
    yield compare({ name: other.name.replaceAll(/[^a-z]+/g, "-"), limit: null, about: "for comparison" }, other, own);
}
