/**
 * `sandlot bench`: how long the steps of an agent's turn take here, through a gateway or with a private fleet. It works
 * in a temporary thread. The figures are for comparison on one machine; `npm run bench` in the repository measures
 * against baselines.
 */

import { randomBytes } from "node:crypto";
import { DEFAULT_CWD, type Sandbox, SandlotError } from "@sandlot/contract";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { type Target, type TargetOptions, withTarget } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

export interface BenchCommandOptions extends TargetOptions {
  readonly user?: string;
  readonly blueprint?: string;
  readonly rounds?: number;
  readonly json: boolean;
}

interface Figure {
  readonly name: string;
  readonly count: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly maxMs: number;
}

interface Step {
  readonly name: string;
  run(round: number): Promise<void>;
}

const ROUNDS = 50;
const COLD_ROUNDS = 3;
const FILE_BYTES = 64 * 1024;
const TRANSFER_BYTES = 16 * 1024 * 1024;

export async function benchCommand(
  terminal: Terminal,
  options: BenchCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { rounds = ROUNDS, json } = options;
  if (rounds < 1) throw new SandlotError("invalid_request", { field: "rounds", problem: "it must be at least 1" });
  const figures: Figure[] = [];
  await withTarget(terminal, options, (target) => {
    let now = "";
    const measure = async (step: Step, count: number) => {
      now = step.name;
      figures.push(await timed(step, count, signal));
    };
    return withProgress(
      terminal,
      () => `Measuring: ${now}`,
      () => benchTarget(target, options, rounds, measure, signal),
    );
  });
  if (json) return printJson(terminal, { rounds, figures });
  const rows = figures.map(({ name, count, p50Ms, p95Ms, maxMs }) => [
    ...[name, String(count), p50Ms.toFixed(2), p95Ms.toFixed(2), maxMs.toFixed(2)],
  ]);
  printTable(terminal, ["STEP", "TIMES", "P50 MS", "P95 MS", "MAX MS"], rows);
}

async function benchTarget(
  target: Target,
  { user, blueprint }: BenchCommandOptions,
  rounds: number,
  measure: (step: Step, count: number) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const base = `bench-${randomBytes(6).toString("hex")}`;
  const acquire = (thread: string) => target.acquire({ thread, user, blueprint }, "sandlot bench", signal);
  const remove = async (thread: string) =>
    void (await target.destroy({ thread, user }, { force: true, purge: true }, new AbortController().signal));
  const once = async (thread: string) => {
    await using lease = await acquire(thread);
    void lease;
  };
  const names = Array.from({ length: COLD_ROUNDS }, (_, index) => `${base}-${index}`);
  try {
    const cold = { name: "acquire, made anew", run: (round: number) => once(names[round] ?? base) };
    await measure(cold, COLD_ROUNDS);
    const thread = names[0] ?? base;
    await measure({ name: "acquire, parked", run: () => once(thread) }, rounds);
    await using lease = await acquire(thread);
    await measure({ name: "acquire, held", run: () => once(thread) }, rounds);
    for (const step of sandboxSteps(lease.sandbox)) await measure(step, step.name.includes("MiB") ? 3 : rounds);
  } finally {
    for (const thread of names) await remove(thread);
  }
}

function sandboxSteps(sandbox: Sandbox): readonly Step[] {
  const small = randomBytes(FILE_BYTES);
  const large = randomBytes(TRANSFER_BYTES);
  const [smallPath, largePath] = [`${DEFAULT_CWD}/.bench-small`, `${DEFAULT_CWD}/.bench-large`];
  return [
    {
      name: "exec true",
      async run() {
        const { exitCode } = await sandbox.exec("true");
        if (exitCode !== 0) throw wrong("true", `ended with ${exitCode}`);
      },
    },
    { name: "write 64 KiB", run: () => sandbox.files.write(smallPath, small).then(() => undefined) },
    {
      name: "read 64 KiB",
      async run() {
        const { byteLength } = await sandbox.files.read(smallPath);
        if (byteLength !== FILE_BYTES) throw wrong("a file", `came back with ${byteLength} bytes`);
      },
    },
    { name: "send 16 MiB", run: () => sandbox.files.upload(largePath, pieces(large)).then(() => undefined) },
    {
      name: "fetch 16 MiB",
      async run() {
        let size = 0;
        for await (const piece of sandbox.files.download(largePath)) size += piece.byteLength;
        if (size !== TRANSFER_BYTES) throw wrong("a file", `came back with ${size} bytes`);
      },
    },
  ];
}

async function timed({ name, run }: Step, count: number, signal: AbortSignal): Promise<Figure> {
  const timesMs: number[] = [];
  for (let round = 0; round < count; round += 1) {
    signal.throwIfAborted();
    const from = performance.now();
    await run(round);
    timesMs.push(performance.now() - from);
  }
  timesMs.sort((a, b) => a - b);
  const at = (share: number) => round3(timesMs[Math.min(count - 1, Math.floor(share * count))] ?? 0);
  return { name, count, p50Ms: at(0.5), p95Ms: at(0.95), maxMs: at(1) };
}

async function* pieces(content: Uint8Array) {
  const size = 256 * 1024;
  for (let at = 0; at < content.byteLength; at += size) yield content.subarray(at, at + size);
}

function wrong(what: string, problem: string): SandlotError {
  return new SandlotError("internal", { problem: `${what} ${problem}` });
}

function round3(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}
