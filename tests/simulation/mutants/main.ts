/**
 * Plants bugs, one at a time, and lets the simulation find them: `npm run sim:mutants`.
 *
 *   npm run sim:mutants -- --only stop-ignores-holders,bury-ignores-the-beat
 *
 * `--unchanged N` runs the sources without a mutant over N seeds, after `npm run sim` has covered more.
 *
 * It fails when a mutant survives, when one can no longer be planted, when a rule has no mutant, or when the sources
 * without a mutant do not pass.
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { loadMutants, type Mutant } from "./mutant.ts";
import { ROOT, Workbench } from "./workbench.ts";

/** As many seeds as continuous integration runs, so a survivor here would survive there. */
const RUNS = 3_000;
const RULES = 16;

interface Verdict {
  readonly mutant: Mutant;
  /** `null`: it survived. */
  readonly caughtBy: { readonly invariant: string; readonly seed: number } | null;
  readonly problem: string | null;
  readonly seconds: number;
}

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    runs: { type: "string", default: String(RUNS) },
    unchanged: { type: "string" },
    jobs: { type: "string", default: "2" },
  },
});
const runs = Number(values.runs);
process.exitCode = await main();

async function main(): Promise<number> {
  const only = values.only?.split(",");
  const all = loadMutants();
  const covered = new Set(all.map(({ rule }) => rule));
  const mutants = all.filter(({ name }) => only === undefined || only.includes(name));
  const uncovered = Array.from({ length: RULES }, (_, index) => index + 1).filter((rule) => !covered.has(rule));
  // Also the mutants that are not tried: a mutant whose text has moved proves nothing.
  const lost = all.filter(({ file, find }) => readFileSync(join(ROOT, file), "utf8").split(find).length !== 2);
  for (const { name, file } of lost) console.log(`${name} can no longer be planted in ${file}`);
  if (only === undefined && uncovered.length > 0) console.log(`no mutant for rule ${uncovered.join(", ")}`);
  const benches = Array.from({ length: Number(values.jobs) }, () => new Workbench());
  try {
    const clean = await passesUnchanged(benches[0] as Workbench);
    const verdicts = clean ? await tryAll(mutants, benches) : [];
    const alive = verdicts.filter(({ caughtBy }) => caughtBy === null);
    console.log(`\n${mutants.length} mutants, ${verdicts.length - alive.length} caught`);
    for (const { mutant, problem } of alive) console.log(`SURVIVED ${mutant.name}: ${problem ?? mutant.why}`);
    const complete = lost.length === 0 && (only !== undefined || uncovered.length === 0);
    return clean && alive.length === 0 && complete ? 0 : 1;
  } finally {
    for (const bench of benches) bench[Symbol.dispose]();
  }
}

async function passesUnchanged(bench: Workbench): Promise<boolean> {
  const seeds = Number(values.unchanged ?? runs);
  const { code, output, seconds } = await simulate(bench, seeds, Number(values.jobs));
  if (code === 0) console.log(`${"(nothing planted)".padEnd(44)} passes ${seeds} seeds in ${seconds.toFixed(0)} s`);
  else console.log(`the sources without a mutant do not pass:\n${output}`);
  return code === 0;
}

async function tryAll(mutants: readonly Mutant[], benches: readonly Workbench[]): Promise<Verdict[]> {
  const waiting = [...mutants];
  const verdicts: Verdict[] = [];
  await Promise.all(
    benches.map(async (bench) => {
      for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
        const verdict = await tryOne(mutant, bench);
        verdicts.push(verdict);
        tell(verdict);
      }
    }),
  );
  return verdicts;
}

async function tryOne(mutant: Mutant, bench: Workbench): Promise<Verdict> {
  try {
    bench.plant(mutant.file, mutant.find, mutant.put);
  } catch (error) {
    return { mutant, caughtBy: null, problem: String(error), seconds: 0 };
  }
  try {
    const { output, seconds } = await simulate(bench, runs, 1);
    const found = /^VIOLATION (?<invariant>\S+)[\s\S]*?^ {2}seed (?<seed>\d+)/m.exec(output)?.groups;
    const caughtBy = found === undefined ? null : { invariant: found.invariant ?? "", seed: Number(found.seed) };
    // A mutant that fails to load was not found by a check.
    const problem = caughtBy === null && !output.includes(" runs, ") ? output.slice(-500) : null;
    return { mutant, caughtBy, problem, seconds };
  } finally {
    bench.restore(mutant.file);
  }
}

function tell({ mutant, caughtBy, seconds }: Verdict): void {
  const what = caughtBy === null ? "SURVIVED" : `caught by ${caughtBy.invariant}, seed ${caughtBy.seed}`;
  const rule = mutant.rule === 0 ? "      " : `rule ${String(mutant.rule).padStart(2)}`;
  console.log(`${mutant.name.padEnd(44)} ${rule}  ${what.padEnd(58)} ${seconds.toFixed(1).padStart(6)} s`);
}

function simulate(
  bench: Workbench,
  seeds: number,
  jobs: number,
): Promise<{ code: number; output: string; seconds: number }> {
  const startedAt = performance.now();
  const args = [
    "--conditions=sandlot-source",
    "tests/simulation/main.ts",
    "--runs",
    String(seeds),
    "--jobs",
    String(jobs),
  ];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [...args, "--stop", "--quiet"], {
      cwd: bench.path,
      env: { NODE_COMPILE_CACHE: join(bench.path, "compiled"), ...process.env },
    });
    let output = "";
    child.stdout.on("data", (text: Buffer) => (output += text.toString()));
    child.stderr.on("data", (text: Buffer) => (output += text.toString()));
    child.on("error", reject);
    child.on("close", (code) => resolve({ code: code ?? 1, output, seconds: (performance.now() - startedAt) / 1000 }));
  });
}
