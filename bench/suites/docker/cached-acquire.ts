/** Acquiring a held sandbox, with liveness, against one `inspect` of the container over a keep-alive connection. */

import { interleave } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import type { SuiteOptions } from "../suite.ts";
import type { Stage } from "./stage.ts";

const LIMIT = 1 / 200;

export async function* cachedAcquire(stage: Stage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  await using opened = await stage.fleet();
  await using held = await opened.fleet.acquire({ thread: "bench" });
  const container = await stage.containerOf(held.sandbox.id);
  const subjects = [
    {
      name: "acquire and release",
      run: async (count: number) => {
        for (let done = 0; done < count; done += 1) await (await opened.fleet.acquire({ thread: "bench" })).release();
      },
    },
    {
      name: "inspect",
      run: async (count: number) => {
        for (let done = 0; done < count; done += 1) await container.inspect();
      },
    },
  ];
  const [ours, theirs] = await interleave(subjects, {
    rounds: quick ? 20 : 60,
    batch: 200,
    timingsPerRound: 1,
    warmUp: 200,
  });
  if (ours === undefined || theirs === undefined) throw new Error("A side is missing.");
  const about = "a held thread, whose death would be pushed; the connection for inspect is kept alive";
  yield compare({ name: "docker-cached-acquire", limit: LIMIT, about }, ours, theirs);
}
