/** One of several threads that run seeds: it gets a range at a time and returns the results. */

import { parentPort, workerData } from "node:worker_threads";
import { runSeed } from "./run.ts";
import { addRun, newTally, type Tally } from "./tally.ts";

export interface Range {
  readonly from: number;
  readonly count: number;
}

export interface Failure {
  readonly seed: number;
  readonly invariant: string;
  readonly at: number;
  readonly detail: string;
}

/** The input of a new thread. */
export interface Start {
  /** A number that grows with the virtual time of a run. */
  readonly turns: Int32Array<SharedArrayBuffer>;
}

/** Sent before each run, so that a run that never ends can be named. */
export interface Beginning {
  readonly begins: number;
}

export interface Broken {
  readonly broken: string;
}

export interface Answer {
  readonly tally: Tally;
  /** The first violation of each failed seed: the others follow from it. */
  readonly failures: readonly Failure[];
}

// Errors are ordinary results here, by the thousand; their stacks would cost more than the runs. `--trace` has them.
Error.stackTraceLimit = 0;

parentPort?.on("message", (range: Range) => {
  runRange(range).then(
    (answer) => parentPort?.postMessage(answer),
    // The simulation itself is broken: its thread must stop.
    (error: unknown) => setImmediate(() => parentPort?.postMessage({ broken: String(error) } satisfies Broken)),
  );
});

const { turns } = workerData as Start;
const onTurn = () => Atomics.add(turns, 0, 1);

async function runRange({ from, count }: Range): Promise<Answer> {
  const tally = newTally();
  const failures: Failure[] = [];
  for (let seed = from; seed < from + count; seed += 1) {
    parentPort?.postMessage({ begins: seed } satisfies Beginning);
    const run = await runSeed(seed, { onTurn });
    addRun(tally, run);
    const [first] = run.violations;
    if (first !== undefined) failures.push({ seed, ...first });
  }
  return { tally, failures };
}
