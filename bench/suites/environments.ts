/**
 * The suite `environments`: a warm start with an environment of 20,000 files against one without, round by round; and
 * what the second thread of an environment brings to the disk.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Fleet, Lease } from "../../packages/fleet/src/fleet.ts";
import { interleave, type Subject } from "../measuring/interleave.ts";
import { compare, type Result, resultOf } from "../measuring/result.ts";
import { openLocalFleet } from "../stage/local-fleet.ts";
import type { Suite, SuiteOptions } from "./suite.ts";

const FILES = 20_000;
const FILE_BYTES = 2_000;
const WARM_LIMIT = 1.1;
/** One file names the packages; its directories are all else that may come. */
const SECOND_THREAD_LIMIT = 0.001;
const PATIENCE_MS = 120_000;

const SCRIPT = [
  "import os, sys",
  'top = "/opt/env/lib/python%d.%d/site-packages" % sys.version_info[:2]',
  `for at in range(${FILES}):`,
  '    folder = f"{top}/p{at % 200}"',
  "    os.makedirs(folder, exist_ok=True)",
  `    open(f"{folder}/m{at}.py", "w").write("x" * ${FILE_BYTES})`,
].join("\n");

export const suite: Suite = {
  about: [
    `An environment of ${FILES.toLocaleString("en")} files of ${FILE_BYTES.toLocaleString("en")} bytes, on local sandboxes. A warm start is the acquire of a new`,
    "thread with a blank in the pool, and its first command.",
  ].join("\n"),
  async *run(options) {
    const setup = { script: `/usr/bin/python3 - <<'END'\n${SCRIPT}\nEND\n` };
    await using local = await openLocalFleet({
      blueprints: { default: {}, packages: { setup } },
      pool: { default: 1, packages: 1 },
      housekeepingIntervalMs: 1_000,
      acquireTimeoutMs: PATIENCE_MS,
    });
    yield* warmStart(local.fleet, options);
    yield* secondThread(local.fleet);
  },
};

async function* warmStart(fleet: Fleet, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const subjects = [subject(fleet, "with an environment", "packages"), subject(fleet, "without", "default")];
  const plan = { rounds: quick ? 8 : 40, batch: 1, timingsPerRound: 1, warmUp: 3 };
  const [with_, without] = await interleave(subjects, plan);
  if (with_ === undefined || without === undefined) throw new Error("A side is missing.");
  const about = "acquire from the blank pool + exec of /bin/true; both pools are full before each timing";
  yield compare({ name: "warm-start", limit: WARM_LIMIT, about }, with_, without);
}

function subject(fleet: Fleet, name: string, blueprint: string): Subject {
  let serial = 0;
  let lease: Lease | null = null;
  let thread = "";
  return {
    name,
    prepare: async () => {
      thread = `${blueprint}-${++serial}`;
      const deadline = Date.now() + PATIENCE_MS;
      while ((await fleet.pool()).blueprints.some(({ ready, target }) => ready < target)) {
        if (Date.now() > deadline) throw new Error("The pool was not filled.");
        await sleep(20);
      }
      // The newest sandbox is still starting inside.
      await sleep(100);
    },
    run: async () => {
      lease = await fleet.acquire({ thread, blueprint });
      const { exitCode } = await lease.sandbox.exec(["/bin/true"]);
      if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
    },
    settle: async () => {
      await lease?.release();
      await fleet.destroy({ thread }, { purge: true });
    },
  };
}

/** Bytes of the second thread's whole workspace and home, against those of the environment that it uses. */
async function* secondThread(fleet: Fleet): AsyncGenerator<Result> {
  await bytesOf(fleet, "first");
  const { own, shared } = await bytesOf(fleet, "second");
  console.log(`the second thread has ${own} bytes of its own, and uses ${shared} bytes of the environment`);
  const sides = [
    { name: "the thread's own", samples: [own] },
    { name: "the environment", samples: [shared] },
  ];
  const about =
    "sizes of the files below /mnt/user-data, and of /opt/env, after a command that imports from the environment";
  const ratio = own / shared;
  yield resultOf({ name: "second-thread", limit: SECOND_THREAD_LIMIT, about }, "bytes", sides, [ratio], ratio);
}

async function bytesOf(fleet: Fleet, thread: string): Promise<{ own: number; shared: number }> {
  await using lease = await fleet.acquire({ thread, blueprint: "packages" });
  const command =
    "/usr/bin/python3 -c 'import p7; print(p7.__path__)' >&2; find /mnt/user-data -type f -printf '%s\\n' | awk '{ s += $1 } END { print s + 0 }'; du -sb /opt/env | cut -f1";
  const { stdout, exitCode, stderr } = await lease.sandbox.exec(["bash", "-c", command]);
  if (exitCode !== 0 || !stderr.includes("/opt/env")) throw new Error(`It has no packages: ${stderr}`);
  const [own = Number.NaN, shared = Number.NaN] = stdout.trim().split("\n").map(Number);
  return { own, shared };
}
