/**
 * Running `true` in a held sandbox, a new process each time, against `exec create + start` of the Engine API in the
 * same container.
 */

import { interleave } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import type { SuiteOptions } from "../suite.ts";
import { engineExec, type Stage } from "./stage.ts";

const LIMIT = 1 / 15;

export async function* execTrue(stage: Stage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  await using opened = await stage.fleet();
  await using lease = await opened.fleet.acquire({ thread: "bench" });
  const container = await stage.containerOf(lease.sandbox.id);
  const subjects = [
    {
      name: "exec with argv",
      run: async (count: number) => {
        for (let done = 0; done < count; done += 1) await lease.sandbox.exec(["/bin/true"]);
      },
    },
    {
      name: "exec create + start",
      run: async (count: number) => {
        for (let done = 0; done < count; done += 1) await engineExec(container, ["/bin/true"]);
      },
    },
  ];
  const [ours, theirs] = await interleave(subjects, {
    rounds: quick ? 8 : 30,
    batch: 10,
    timingsPerRound: 1,
    warmUp: 10,
  });
  if (ours === undefined || theirs === undefined) throw new Error("A side is missing.");
  const about = "one after another, in the same container, output read to its end on both sides";
  yield compare({ name: "docker-exec-true", limit: LIMIT, about }, ours, theirs);
}
