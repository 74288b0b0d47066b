/**
 * `npm run vm`: tests in a separate machine what needs another kernel: disk budgets by project quotas on ext4 and xfs,
 * and limits by control groups of version 2.
 *
 *   npm run vm                        everything
 *   npm run vm -- --parts ext4,groups only these
 *   npm run vm -- --timeout-s 900     the time limit
 */

import { parseArgs } from "node:util";
import { findKernel, missingPrograms } from "./kernel.ts";
import { runMachine } from "./machine.ts";
import { PARTS } from "./parts.ts";

const names = PARTS.map(({ name }) => name);
const { values } = parseArgs({
  options: {
    parts: { type: "string", default: names.join(",") },
    "timeout-s": { type: "string", default: "3600" },
  },
});
const parts = values.parts.split(",");
const unknown = parts.filter((name) => !names.includes(name));
if (unknown.length > 0) fail(`there is no part ${unknown.join(", ")}; there are ${names.join(", ")}`);
const [missing] = missingPrograms();
if (missing !== undefined) fail(missing);

const fromMs = performance.now();
const code = await runMachine(findKernel(), parts, Number(values["timeout-s"]) * 1_000);
const seconds = Math.round((performance.now() - fromMs) / 1_000);
if (code === 0) console.log(`vm: passed: ${parts.join(", ")}; ${seconds} s in all`);
else fail(`FAILED after ${seconds} s${code === null ? ": the machine ended before the tests did" : ""}`);

function fail(problem: string): never {
  console.error(`vm: ${problem}`);
  process.exit(1);
}
