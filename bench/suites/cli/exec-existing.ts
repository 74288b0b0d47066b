/** `sandlot exec` in an existing sandbox, directly and through a gateway, against `docker exec`. */

import { execFileSync } from "node:child_process";
import { holdTestEngine } from "../../../scripts/docker-test-engine.mjs";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { runProgram } from "../../measuring/program.ts";
import { compare, type Result } from "../../measuring/result.ts";
import type { SuiteOptions } from "../suite.ts";
import { type CliStage, THREAD } from "./stage.ts";

const ALONE_LIMIT = 3;
const GATEWAY_LIMIT = 1.5;

export async function* execExisting(stage: CliStage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const engine = await holdTestEngine();
  if ("reason" in engine) throw new Error(`There is no Docker engine: ${engine.reason}`);
  const docker = (...args: readonly string[]) => ["docker", "--host", engine.host, ...args];
  const [program = "", ...args] = docker("run", "--rm", "-d", "--network", "none", engine.image, "sleep", "3600");
  const container = execFileSync(program, args, { encoding: "utf8" }).trim();
  const served = await stage.serve();
  const gateway = { ...stage.environment, SANDLOT_URL: served.url, SANDLOT_API_KEY: served.key };
  try {
    const exec = stage.sandlot("exec", "--thread", THREAD, "--", "true");
    const [alone, through, theirs] = await interleave(
      [
        side("sandlot exec, no gateway", exec, stage.environment),
        side("sandlot exec, through a gateway", exec, gateway),
        side("docker exec", docker("exec", container, "true"), stage.environment),
      ],
      { rounds: quick ? 6 : 25, batch: 1, timingsPerRound: 1, warmUp: 2 },
    );
    if (alone === undefined || through === undefined || theirs === undefined) throw new Error("A side is missing.");
    const about = "from the start of the program to its end; a gateway runs beside both";
    yield compare({ name: "cli-exec-alone", limit: ALONE_LIMIT, about }, alone, theirs);
    yield compare({ name: "cli-exec-through-gateway", limit: GATEWAY_LIMIT, about }, through, theirs);
  } finally {
    await served.end("SIGTERM");
    const [remove = "", ...removing] = docker("rm", "--force", container);
    execFileSync(remove, removing, { stdio: "ignore" });
    await engine.release();
  }
}

function side(name: string, command: readonly string[], environment: NodeJS.ProcessEnv): Subject {
  return { name, run: () => runProgram(command, environment) };
}
