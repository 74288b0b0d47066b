/** An undo as a caller sees it, on local sandboxes: with the end of the sandbox, and the next acquire, apart. */

import type { Timings } from "../../measuring/interleave.ts";
import { type Result, resultOf } from "../../measuring/result.ts";
import { median } from "../../measuring/statistics.ts";
import { openLocalFleet } from "../../stage/local-fleet.ts";
import type { SuiteOptions } from "../suite.ts";
import { planOf, type Stage } from "./stage.ts";

export async function* undoInFleet(_stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  await using local = await openLocalFleet();
  const { fleet } = local;
  const undo: number[] = [];
  const stop: number[] = [];
  const bind: number[] = [];
  const write = async (thread: string, text: string) => {
    await using lease = await fleet.acquire({ thread });
    await lease.sandbox.exec(`echo ${text} > file`);
  };
  for (let round = 0; round < planOf(options).rounds; round++) {
    const thread = `t${round}`;
    await write(thread, "one");
    await fleet.checkpoints.take({ thread });
    await write(thread, "two");
    undo.push(await timed(() => fleet.checkpoints.undo({ thread })));
    bind.push(await timed(() => write(thread, "three")));
    stop.push(await timed(() => fleet.destroy({ thread })));
  }
  const side = (name: string, samples: readonly number[]): Pick<Timings, "name" | "samples"> => ({ name, samples });
  const sides = [side("undo", undo), side("end of a sandbox", stop), side("next acquire and exec", bind)];
  const about = "a workspace of one file, through a fleet; the undo has the end of its sandbox in it";
  const ratios = undo.map((time, round) => time / (stop[round] ?? Number.NaN));
  yield resultOf({ name: "undo-in-fleet", limit: null, about }, "ns", sides, ratios, median(undo) / median(stop));
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - startedAt);
}
