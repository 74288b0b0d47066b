/** Running `true` in a held sandbox, a new process each time, against Node's own spawn on the host. */

import { spawnTrue } from "../../baselines/host-process.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { openLocalFleet } from "../../stage/local-fleet.ts";
import type { SuiteOptions } from "../suite.ts";

const ARGV_LIMIT = 1.5;
const SHELL_LIMIT = 1.8;

export async function* execTrue({ quick }: SuiteOptions): AsyncGenerator<Result> {
  await using local = await openLocalFleet();
  await using lease = await local.fleet.acquire({ thread: "bench" });
  const inSandbox = (name: string, command: string | readonly string[]): Subject => ({
    name,
    run: async (count) => {
      for (let done = 0; done < count; done += 1) {
        const { exitCode } = await lease.sandbox.exec(command);
        if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
      }
    },
  });
  const onHost: Subject = {
    name: "spawn on the host",
    run: async (count) => {
      for (let done = 0; done < count; done += 1) await spawnTrue();
    },
  };
  const plan = { rounds: quick ? 30 : 150, batch: 5, timingsPerRound: 1, warmUp: 50 };
  const subjects = [inSandbox("exec with argv", ["/bin/true"]), inSandbox("exec through the shell", "true"), onHost];
  const [argv, shell, host] = await interleave(subjects, plan);
  if (argv === undefined || shell === undefined || host === undefined) throw new Error("A side is missing.");
  const about = "one after another, output collected on both sides";
  yield compare({ name: "exec-true-argv", limit: ARGV_LIMIT, about }, argv, host);
  yield compare({ name: "exec-true-shell", limit: SHELL_LIMIT, about }, shell, host);
}
