/** A gateway is killed and restarted: the time until its first command in the existing sandbox. */

import { type Result, resultOf } from "../../measuring/result.ts";
import { median } from "../../measuring/statistics.ts";
import type { SuiteOptions } from "../suite.ts";
import { type CliStage, THREAD } from "./stage.ts";

const MAX_MS = 300;

export async function* gatewayRestart(stage: CliStage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const listening: number[] = [];
  const firstCommand: number[] = [];
  for (let round = 0; round < (quick ? 4 : 15); round += 1) {
    const startedAt = process.hrtime.bigint();
    const { url, key, end } = await stage.serve();
    listening.push(Number(process.hrtime.bigint() - startedAt));
    const answer = await fetch(`${url}/v1/threads/${THREAD}/exec`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ command: "true" }),
    });
    const { exitCode } = (await answer.json()) as { exitCode?: number };
    firstCommand.push(Number(process.hrtime.bigint() - startedAt));
    await end("SIGKILL");
    if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
  }
  const shares = firstCommand.map((sample) => sample / 1e6 / MAX_MS);
  const sides = [
    { name: "listening", samples: listening },
    { name: "first command", samples: firstCommand },
  ];
  const about = `from the start of the process, as a share of ${MAX_MS} ms; the one before was killed`;
  yield resultOf({ name: "gateway-restart-of-limit", limit: 1, about }, "ns", sides, shares, median(shares));
}
