/**
 * Benchmarks: ratios against known baselines, measured side by side in one run.
 *
 *   npm run bench core                          all results of a suite
 *   npm run bench core -- --quick               fewer rounds
 *   npm run bench core -- --json results.jsonl  also one JSON line per result, with the raw samples
 *   npm run bench checkpoints -- --only undo    some parts of a suite that has parts
 *   npm run bench dashboard -- --minutes 10     how long its open page is watched; 1 without it
 *   npm run bench scenarios -- --backend local  turns of conversations, timed (scenarios/main.ts has its own options)
 *
 * Exits with 1 when a ratio misses its limit, with 2 on wrong arguments.
 */

import { appendFileSync, writeFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { describe, jsonLine } from "./measuring/report.ts";
import { isMissed } from "./measuring/result.ts";
import type { Suite } from "./suites/suite.ts";

/** Loaded on demand: a suite may need a missing engine. */
const SUITES: Readonly<Record<string, () => Promise<{ readonly suite: Suite }>>> = {
  core: () => import("./suites/core.ts"),
  gateway: () => import("./suites/gateway.ts"),
  local: () => import("./suites/local.ts"),
  docker: () => import("./suites/docker.ts"),
  cli: () => import("./suites/cli.ts"),
  stores: () => import("./suites/stores.ts"),
  peers: () => import("./suites/peers.ts"),
  environments: () => import("./suites/environments.ts"),
  checkpoints: () => import("./suites/checkpoints.ts"),
  dashboard: () => import("./suites/dashboard.ts"),
  kubernetes: () => import("./suites/kubernetes.ts"),
};

class UsageError extends Error {}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(error.message);
  console.error(
    `usage: npm run bench <suite> [-- --json FILE] [--only PART,…] [--quick] [--minutes N]   suites: ${Object.keys(SUITES).join(", ")}`,
  );
  process.exitCode = 2;
}

async function main(args: readonly string[]): Promise<number> {
  if (args[0] === "scenarios") return (await import("./scenarios/main.ts")).scenarios(args.slice(1));
  const { name, load, json, quick, only, minutes } = parse(args);
  const { suite } = await load();
  const unknown = only?.find((part) => suite.parts?.includes(part) !== true);
  if (unknown !== undefined) throw new UsageError(`--only: ${name} has ${suite.parts?.join(", ") ?? "no parts"}.`);
  const load1 = loadavg()[0]?.toFixed(2);
  console.log(
    `${name}${quick ? ", quick" : ""}: Node ${process.version}, ${availableParallelism()} CPUs, load ${load1}`,
  );
  console.log(`${suite.about}\n`);
  if (json !== undefined) begin(json);
  const missed: string[] = [];
  for await (const result of suite.run({ quick, minutes, ...(only !== undefined && { only }) })) {
    console.log(`${describe(result)}\n`);
    if (json !== undefined) appendFileSync(json, jsonLine(result));
    if (isMissed(result)) missed.push(result.name);
  }
  console.log(missed.length === 0 ? "every limit holds" : `missed: ${missed.join(", ")}`);
  return missed.length === 0 ? 0 : 1;
}

/** Before the first result: an unwritable file is found now and not after minutes. */
function begin(file: string): void {
  try {
    writeFileSync(file, "");
  } catch (error) {
    throw new UsageError(`--json: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function parse(args: readonly string[]) {
  const { values, positionals } = understand(args);
  const [name, ...rest] = positionals;
  if (name === undefined || rest.length > 0) throw new UsageError("Name one suite.");
  const load = Object.hasOwn(SUITES, name) ? SUITES[name] : undefined;
  if (load === undefined) throw new UsageError(`There is no suite ${JSON.stringify(name)}.`);
  const minutes = Number(values.minutes);
  if (!(minutes > 0 && minutes <= 60)) throw new UsageError("--minutes is a number up to 60.");
  return { name, load, json: values.json, quick: values.quick, minutes, only: values.only?.split(",") };
}

function understand(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        json: { type: "string" },
        only: { type: "string" },
        quick: { type: "boolean", default: false },
        minutes: { type: "string", default: "1" },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
