/**
 * Runs inside the machine: the requested parts, one after the other, each a run of Vitest with its temporary files on
 * the part's disk.
 */

import { spawn } from "node:child_process";
import { PARTS, type Part } from "./parts.ts";

const wanted = (process.env.SANDLOT_PARTS ?? "").split(",");
const failed: string[] = [];
for (const part of PARTS.filter(({ name }) => wanted.includes(name))) {
  console.log(`vm: part ${part.name}: ${part.about}`);
  const fromMs = performance.now();
  const code = await runPart(part);
  const seconds = Math.round((performance.now() - fromMs) / 1_000);
  console.log(`vm: part ${part.name}: ${code === 0 ? "passed" : `FAILED (${code})`} after ${seconds} s`);
  if (code !== 0) failed.push(part.name);
}
process.exitCode = failed.length === 0 ? 0 : 1;

function runPart({ temporary, files }: Part): Promise<number> {
  const vitest = [
    "node_modules/vitest/vitest.mjs",
    "run",
    "--config",
    "tests/vm/vitest.config.ts",
    "--reporter=verbose",
  ];
  const env = {
    PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: "/tmp",
    NO_COLOR: "1",
    TMPDIR: temporary,
    SANDLOT_TEST_PATIENCE: "5",
  };
  const child = spawn(process.execPath, [...vitest, ...files], { stdio: ["ignore", "pipe", "pipe"], env });
  child.stdout.pipe(process.stdout, { end: false });
  child.stderr.pipe(process.stdout, { end: false });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
}
