/**
 * The model of checkpoints, many times, in two processes on one store:
 *
 *   npm run checkpoints:model -- --runs 5000
 *   npm run checkpoints:model -- --seed 4711 --runs 1
 */

import { fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { runSequences } from "./model.ts";

const PROCESSES = 2;
const SAID_EVERY = 250;
const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "5000" },
    seed: { type: "string", default: "1" },
    root: { type: "string" },
    prefix: { type: "string" },
  },
});
const [runs, seed] = [Number(values.runs), Number(values.seed)];

if (values.root !== undefined) {
  // One that says nothing for minutes would count as stuck.
  for (let done = 0; done < runs; done += SAID_EVERY) {
    await runSequences(values.root, seed + done, Math.min(SAID_EVERY, runs - done), values.prefix ?? "t");
    if (done > 0) console.log(`${values.prefix}: ${done} sequences agree`);
  }
  process.exit(0);
}
// In memory where that is possible: what is tested is not the disk.
const root = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "sandlot-model-"));
const startedAt = process.hrtime.bigint();
const each = Math.ceil(runs / Math.min(PROCESSES, runs));
const children = Array.from({ length: Math.min(PROCESSES, runs) }, (_, at) =>
  fork(import.meta.filename, [
    ...["--root", root, "--runs", String(each), "--seed", String(seed + at * each), "--prefix", `p${at}-`],
  ]),
);
const codes = await Promise.all(children.map(async (child) => (await once(child, "exit"))[0] as number | null));
rmSync(root, { recursive: true, force: true });
const seconds = Math.round(Number(process.hrtime.bigint() - startedAt) / 1e9);
const failed = codes.filter((code) => code !== 0).length;
console.log(
  `${each * children.length} sequences in ${children.length} processes, ${seconds} s: ${failed === 0 ? "they agree" : "they differ"}`,
);
process.exitCode = failed === 0 ? 0 : 1;
