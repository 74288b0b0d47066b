/**
 * Checkpoints of very many files: `npm run checkpoints:million -- --files 1000000`. Prints how long each step takes and the
 * most memory that its worker had, and fails over 300 MB.
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { LongCall } from "../../../src/backend/checkpoints.ts";
import { Ground, never } from "./ground.ts";

const PEAK_MAX_MB = 300;
const PER_DIRECTORY = 1_000;
const SAY_EVERY_MS = 30_000;
const { values } = parseArgs({
  options: { files: { type: "string", default: "1000000" }, directory: { type: "string", default: tmpdir() } },
});
const files = Number(values.files);
const root = mkdtempSync(join(values.directory, "sandlot-million-"));
let highest = 0;

let saidAt = 0;

/** A step that says nothing for minutes would count as stuck. */
function say(text: string): void {
  if (performance.now() - saidAt < SAY_EVERY_MS) return;
  saidAt = performance.now();
  console.log(`  ${text}`);
}

const call: LongCall = { ...never, onProgress: ({ phase, files: done }) => say(`${phase}: ${done} files`) };

async function step(name: string, ground: Ground, work: () => Promise<unknown>): Promise<void> {
  const startedAt = performance.now();
  await work();
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  const peakMb = Math.max(0, ...ground.workerPids().map(peakOf));
  highest = Math.max(highest, peakMb);
  console.log(`${name.padEnd(28)} ${seconds.padStart(7)} s, at most ${peakMb.toFixed(0)} MB in the worker`);
}

/** Since the process began. */
function peakOf(pid: number): number {
  const line = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(line?.[1] ?? Number.NaN) / 1000;
}

function make(work: string): void {
  for (let at = 0; at < files; at++) {
    const directory = join(work, `d${Math.floor(at / PER_DIRECTORY)}`);
    if (at % PER_DIRECTORY === 0) mkdirSync(directory);
    writeFileSync(join(directory, `f${at}`), `file ${at}`);
    say(`making: ${at} files`);
  }
}

try {
  await using ground = new Ground({ readBytesMax: 2 ** 40 }, join(root, "fleet"));
  const home = await ground.home();
  const work = join(home, "workspace");
  let first = "";
  console.log(`${files.toLocaleString("en")} files, ${PER_DIRECTORY.toLocaleString("en")} in a directory`);
  make(work);
  await step("first", ground, async () => {
    first = await ground.taken(ground.owner(), call);
  });
  await step("unchanged", ground, () => ground.take(ground.owner(), call));
  writeFileSync(join(work, "d0", "f0"), "changed");
  await step("one file changed", ground, () => ground.taken(ground.owner(), call));
  await step("diff against the first", ground, () =>
    ground.checkpoints.diff(ground.owner(), { from: first, to: null }, { texts: true, maxChanges: 100, ...call }),
  );
  rmSync(work, { recursive: true });
  mkdirSync(work);
  await step("restore into nothing", ground, () => ground.restore(first, ground.owner(), {}, call));
  const last = statSync(join(work, `d${Math.floor((files - 1) / PER_DIRECTORY)}`, `f${files - 1}`));
  if (last.size !== `file ${files - 1}`.length) throw new Error("the restored tree is not the first one");
  await step("fork", ground, () =>
    ground.checkpoints.seed({ kind: "thread", owner: ground.owner() }, ground.owner("fork"), null, call),
  );
  await step("verify", ground, () => ground.checkpoints.verify(ground.owner(), first, call));
  await step("collect", ground, () =>
    ground.checkpoints.collect((problem) => {
      throw new Error(problem);
    }, never.signal),
  );
  console.log(highest <= PEAK_MAX_MB ? "every step holds" : `over ${PEAK_MAX_MB} MB`);
  process.exitCode = highest <= PEAK_MAX_MB ? 0 : 1;
} finally {
  rmSync(root, { recursive: true, force: true });
}
