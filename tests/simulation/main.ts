/**
 * Runs the simulation.
 *
 *   npm run sim -- --runs 3000               seeds 1 to 3000
 *   npm run sim -- --seed 42 --trace         one seed, with everything that happened in it
 *   npm run sim -- --runs 100000 --jobs 4    more threads
 *   npm run sim -- --runs 3000 --stop        stop at the first violation
 *
 * It fails on a violation, and, over enough runs, when a fault, a move or a check did not happen often enough to have
 * proved anything.
 */

import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import { INVARIANTS, type Invariant } from "./checks/invariants.ts";
import { runSeed } from "./run.ts";
import { addTally, describe, newTally, shortcomings } from "./tally.ts";
import type { Answer, Beginning, Broken, Failure, Range, Start } from "./worker.ts";

/** Seeds given to a thread at a time: few enough to share the work evenly and to stop soon. */
const RANGE = 10;
/** A turn of the scheduler takes milliseconds. When none ends for this many seconds, a run stands still for ever. */
const STANDSTILL_SECONDS = 30;
/** The pending calls of killed instances stay in memory, so a fresh thread replaces each one now and then. */
const RANGES_PER_THREAD = 60;
const PROGRESS_MS = 15_000;
const FAILURES_SHOWN = 30;

const { values } = parseArgs({
  options: {
    runs: { type: "string" },
    seed: { type: "string" },
    jobs: { type: "string", default: "2" },
    trace: { type: "boolean", default: false },
    stop: { type: "boolean", default: false },
    quiet: { type: "boolean", default: false },
  },
});
const first = values.seed === undefined ? 1 : Number(values.seed);
const runs = values.runs === undefined ? (values.seed === undefined ? 1_000 : 1) : Number(values.runs);

process.exitCode = values.trace ? await traceOne(first) : await runMany();

async function traceOne(seed: number): Promise<number> {
  const run = await runSeed(seed, { keepTrace: true });
  for (const line of run.trace ?? []) console.log(line);
  console.log(`\nseed ${seed}: ${run.events} events, hash ${run.hash}, ${run.violations.length} violations`);
  for (const violation of run.violations) report({ seed, ...violation });
  return run.violations.length === 0 ? 0 : 1;
}

async function runMany(): Promise<number> {
  const startedAt = performance.now();
  const tally = newTally();
  const failures: Failure[] = [];
  let next = first;
  let stopped = false;
  const take = (): Range | null => {
    if (stopped || next >= first + runs) return null;
    const range = { from: next, count: Math.min(RANGE, first + runs - next) };
    next += range.count;
    return range;
  };
  const seconds = () => (performance.now() - startedAt) / 1000;
  const progress = setInterval(() => {
    if (!values.quiet)
      console.log(`${tally.runs} of ${runs} runs, ${failures.length} failed, ${seconds().toFixed(0)} s`);
  }, PROGRESS_MS);
  await Promise.all(
    Array.from({ length: Number(values.jobs) }, () =>
      work(take, (answer) => {
        addTally(tally, answer.tally);
        for (const failure of answer.failures) {
          failures.push(failure);
          if (failures.length <= FAILURES_SHOWN) report(failure);
        }
        if (values.stop && failures.length > 0) stopped = true;
      }),
    ),
  );
  clearInterval(progress);
  if (!values.quiet) console.log(describe(tally));
  const missing = stopped ? [] : shortcomings(tally);
  for (const problem of missing) console.log(`NOT PROVED: ${problem}`);
  const each = (1000 * Number(values.jobs) * seconds()) / Math.max(1, tally.runs);
  console.log(
    `\n${tally.runs} runs, ${tally.events} events, ${seconds().toFixed(1)} s (${each.toFixed(1)} ms a run and thread): ` +
      `${failures.length} runs with violations${missing.length === 0 ? "" : `, ${missing.length} things not proved`}`,
  );
  return failures.length === 0 && missing.length === 0 ? 0 : 1;
}

/** One thread, which gets ranges until none are left. A run that never ends takes its thread with it. */
function work(take: () => Range | null, done: (answer: Answer) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const turns = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { workerData: { turns } satisfies Start });
    let watchdog: NodeJS.Timeout | undefined;
    const end = () => {
      clearInterval(watchdog);
      void worker.terminate();
      resolve();
    };
    let fed = 0;
    const feed = () => {
      if (fed === RANGES_PER_THREAD) {
        clearInterval(watchdog);
        void worker.terminate();
        work(take, done).then(resolve, reject);
        return;
      }
      const range = take();
      fed += 1;
      if (range === null) end();
      else worker.postMessage(range);
    };
    worker.on("message", (message: Answer | Beginning | Broken) => {
      clearInterval(watchdog);
      if ("broken" in message) return reject(new Error(message.broken));
      if ("begins" in message) {
        const { begins: seed } = message;
        // Seconds are counted one by one: a stalled machine stops this count as well. A slow machine is no fault: every
        // turn restarts the count, and the events of a run are limited.
        let secondsLeft = STANDSTILL_SECONDS;
        let seen = Atomics.load(turns, 0);
        watchdog = setInterval(() => {
          const now = Atomics.load(turns, 0);
          secondsLeft = now === seen ? secondsLeft - 1 : STANDSTILL_SECONDS;
          seen = now;
          if (secondsLeft > 0) return;
          clearInterval(watchdog);
          const detail = `no event for ${STANDSTILL_SECONDS} s: some code spins without ever waiting`;
          done({ tally: newTally(), failures: [{ seed, invariant: "run-ends", at: 0, detail }] });
          void worker.terminate();
          // Another thread takes its place; the rest of its range is not run.
          work(take, done).then(resolve, reject);
        }, 1_000);
        return;
      }
      done(message);
      feed();
    });
    worker.on("error", reject);
    feed();
  });
}

function report({ seed, invariant, at, detail }: Failure): void {
  const [rule, statement] = INVARIANTS[invariant as Invariant];
  console.log(`VIOLATION ${invariant} (rule ${rule}: ${statement})`);
  console.log(`  seed ${seed} at ${(at / 1000).toFixed(3)} s: ${detail.slice(0, 500)}`);
  console.log(`  replay: npm run sim -- --seed ${seed} --trace`);
}
