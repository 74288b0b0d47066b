/**
 * Scenarios: turns of conversations (acquire, run, release) as DeerFlow's benchmark measures them, with its scenarios,
 * its workloads and its fields, so that both can be compared.
 *
 *   npm run bench scenarios -- --backend local                          every scenario with the workload noop
 *   npm run bench scenarios -- --backend docker --scenario warm_same_thread --workload fs_1mb --iterations 50
 *   npm run bench scenarios -- --backend local --output results.jsonl   where the rows go (appended)
 *
 * Exits with 1 when a turn failed or a scenario did not show its effect, with 2 on wrong arguments.
 */

import { appendFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { summaryOf } from "./percentiles.ts";
import { SCENARIOS, type ScenarioName, type ScenarioPlan } from "./scenarios.ts";
import { openStage } from "./stage.ts";
import type { Row } from "./turn.ts";
import { WORKLOADS, type WorkloadName } from "./workloads.ts";

class UsageError extends Error {}

export async function scenarios(args: readonly string[]): Promise<number> {
  try {
    return await run(parse(args));
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    console.error(error.message);
    console.error(
      "usage: npm run bench scenarios -- [--backend local|docker] [--scenario NAME|all] [--workload NAME|all] [--iterations 50] [--concurrency 1]\n" +
        "       [--warmup-iterations 1] [--replicas 3] [--idle-timeout SECONDS] [--no-warmpool] [--fault-inject N] [--image NAME] [--output FILE]\n" +
        `scenarios: ${Object.keys(SCENARIOS).join(", ")}\nworkloads: ${Object.keys(WORKLOADS).join(", ")}`,
    );
    return 2;
  }
}

type Plan = ReturnType<typeof parse>;

async function run({ backend, scenarioNames, workloadNames, output, plan }: Plan): Promise<number> {
  let problems = 0;
  for (const scenario of scenarioNames) {
    for (const workload of workloadNames) {
      if (workload === "state_reuse" && (scenario !== "warm_same_thread" || plan.concurrency !== 1)) {
        if (workloadNames.length > 1) continue;
        throw new UsageError("state_reuse requires --scenario warm_same_thread --concurrency 1");
      }
      await using stage = await openStage(backend, SCENARIOS[scenario].config(plan), plan.image);
      const turns = { fleet: stage.fleet, provider: backend, image: stage.image, scenario, workload, plan };
      const { rows, problem } = await SCENARIOS[scenario].run(turns);
      if (output !== undefined) for (const row of rows) appendFileSync(output, `${JSON.stringify(row)}\n`);
      print(scenario, workload, rows, problem);
      problems += rows.filter(({ success }) => !success).length + (problem === null ? 0 : 1);
    }
  }
  return problems === 0 ? 0 : 1;
}

function print(scenario: string, workload: string, rows: readonly Row[], problem: string | null): void {
  const { count, ok, errors, warmHitRate, figures } = summaryOf(rows);
  const rate = warmHitRate === null ? "none known" : `${Math.round(warmHitRate * 100)} %`;
  console.log(`${scenario}, ${workload}: ${count} turns, ${ok} ok, ${errors} errors, warm hits ${rate}`);
  for (const line of figures) console.log(`    ${line}`);
  for (const { iteration, error } of rows.filter(({ success }) => !success).slice(0, 5))
    console.log(`    turn ${iteration} failed: ${error}`);
  if (problem !== null) console.log(`    PROBLEM ${problem}`);
}

function parse(args: readonly string[]) {
  const { values } = understand(args);
  const { backend, scenario, workload } = values;
  if (backend !== "local" && backend !== "docker") throw new UsageError(`There is no backend ${backend} here.`);
  const plan: ScenarioPlan = {
    iterations: whole("iterations", values.iterations, 1),
    concurrency: whole("concurrency", values.concurrency, 1),
    warmUpIterations: whole("warmup-iterations", values["warmup-iterations"], 0),
    replicas: whole("replicas", values.replicas, 1),
    idleTimeoutSeconds: whole("idle-timeout", values["idle-timeout"], 1),
    keepsWarm: !values["no-warmpool"],
    faultAfter: values["fault-inject"] === undefined ? null : whole("fault-inject", values["fault-inject"], 0),
    image: values.image ?? null,
  };
  return {
    backend: backend as "local" | "docker",
    scenarioNames: chosen("scenario", scenario, SCENARIOS) as ScenarioName[],
    workloadNames: chosen("workload", workload, WORKLOADS) as WorkloadName[],
    output: values.output,
    plan,
  };
}

function understand(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        backend: { type: "string", default: "local" },
        scenario: { type: "string", default: "all" },
        workload: { type: "string", default: "noop" },
        iterations: { type: "string", default: "50" },
        concurrency: { type: "string", default: "1" },
        "warmup-iterations": { type: "string", default: "1" },
        replicas: { type: "string", default: "3" },
        "idle-timeout": { type: "string", default: "600" },
        "no-warmpool": { type: "boolean", default: false },
        "fault-inject": { type: "string" },
        image: { type: "string" },
        output: { type: "string" },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function chosen(option: string, name: string, from: object): string[] {
  if (name === "all") return Object.keys(from);
  if (!Object.hasOwn(from, name)) throw new UsageError(`There is no ${option} ${name}.`);
  return [name];
}

function whole(option: string, text: string, min: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= min) return value;
  throw new UsageError(`--${option} takes a whole number of at least ${min}, not ${text}`);
}
