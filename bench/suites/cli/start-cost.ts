/** Processor time of short commands, against an empty Node, and against their limits. */

import type { Timings } from "../../measuring/interleave.ts";
import { costOf } from "../../measuring/program.ts";
import { compare, type Result, resultOf } from "../../measuring/result.ts";
import { median } from "../../measuring/statistics.ts";
import type { SuiteOptions } from "../suite.ts";
import type { CliStage } from "./stage.ts";

const NANOSECONDS = 1e9;

export async function* startCost(stage: CliStage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const sides = [
    { name: "bare node", command: [process.execPath, "-e", "0"], maxSeconds: null },
    { name: "sandlot --version", command: stage.sandlot("--version"), maxSeconds: 0.1 },
    { name: "sandlot ps", command: stage.sandlot("ps"), maxSeconds: 0.2 },
  ].map((side) => ({ ...side, samples: [] as number[] }));
  for (const { command } of sides) await costOf(command, stage.environment);
  for (let round = 0; round < (quick ? 5 : 25); round += 1)
    for (const { command, samples } of sides) samples.push((await costOf(command, stage.environment)).processorNs);
  const [bare, ...ours] = sides.map(timings);
  if (bare === undefined) throw new Error("A side is missing.");
  for (const [index, side] of ours.entries()) {
    const name = side.name.replaceAll(/[^a-z]+/g, "-");
    yield compare({ name: `${name}-processor`, limit: null, about: "processor time, user and system" }, side, bare);
    const maxSeconds = sides[index + 1]?.maxSeconds ?? Number.NaN;
    const shares = side.samples.map((sample) => sample / NANOSECONDS / maxSeconds);
    const about = `processor time as a share of ${maxSeconds} s`;
    yield resultOf({ name: `${name}-of-limit`, limit: 1, about }, "ns", [side], shares, median(shares));
  }
}

function timings({ name, samples }: { readonly name: string; readonly samples: readonly number[] }): Timings {
  return { name, samples, rounds: samples };
}
