/**
 * Runs cases against the double: half of them every honest response broken off after each of its bytes, half drawn from
 * a seed.
 *
 * Asserted: every call ends, with a result or a typed error; nothing is thrown past it; no turn of the event loop takes
 * more than `TURN_MAX_MS` of processor time; the bytes taken of a response, and the memory of the process, stay within
 * bounds. Deadlines are `HASTE` times shorter, so that slow bytes cost no time. A bystander uses another sandbox
 * meanwhile.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { isSandlotError } from "@sandlot/contract";
import { DaemonAttachment } from "../../packages/fleet/src/sandboxd/index.ts";
import { aioLimit, DAEMON_LIMITS, type ReplyLimit } from "../../packages/fleet/src/untrusted/limits.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";
import type { World } from "../../packages/fleet/src/world/world.ts";
import { TurnWatch } from "../../packages/fleet/test/support/turn-watch.ts";
import { Chance } from "../fuzz/generate.ts";
import { CASES, type Case, type Stage } from "./cases.ts";
import { HONEST } from "./double/honest.ts";
import { honestLength } from "./double/steps.ts";
import { openPreviews } from "./previews.ts";

const TURN_MAX_MS = 50;
const HASTE = 300;
const CONCURRENCY = 12;
/** Longer than any shortened deadline on a busy machine. */
const HANG_MS = 90_000;
/** For all concurrent cases together, above the baseline: a dozen of the largest allowed responses. */
const MEMORY_MAX_BYTES = 512 * 1024 * 1024;
/** Bytes in flight in sockets when a connection is ended. */
const UNDERWAY_BYTES = 8 * 1024 * 1024;
/** Internal errors of the AIO client; its backend turns them into errors of the contract. */
const AIO_FAILURES = new Set(["NoAnswer", "ServerAway", "AioRefusal", "KeyIgnored", "TimeoutError"]);

export interface Report {
  readonly seed: number;
  readonly cases: number;
  /** By their outcome. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly worstTurnMs: number;
  readonly memoryBytes: number;
  readonly bystanders: Latencies;
  readonly control: Latencies;
  readonly problems: readonly string[];
}

export interface Latencies {
  readonly count: number;
  readonly medianMs: number;
  readonly p99Ms: number;
  readonly worstMs: number;
}

export async function runHostile({ cases, seed }: { cases: number; seed: number }): Promise<Report> {
  const directory = mkdtempSync(join(tmpdir(), "sl-double-"));
  const hostile = await startDouble(join(directory, "h"));
  const friendly = await startDouble(join(directory, "f"));
  const world = hastened(systemWorld());
  const previews = await openPreviews(directory, world);
  const problems: string[] = [];
  const thrown = (error: unknown) => problems.push(`thrown past every caller: ${stackOf(error)}`);
  process.on("uncaughtException", thrown).on("unhandledRejection", thrown);
  try {
    const { path: socketPath, port, keyedPort } = hostile;
    const stage: Stage = { world, socketPath, port, keyedPort, preview: previews.ask };
    const honest = (number: number) => ({ one: CASES[number % CASES.length] as Case, token: `${number}.h.none` });
    // Loading and compiling at the first use must not count.
    await runAll(stage, CASES.length, honest, problems, () => {});
    const control = await beside(friendly.path, () =>
      runAll(stage, Math.min(cases, 1_000), honest, problems, () => {}),
    );
    const outcomes: Record<string, number> = {};
    const watch = new TurnWatch(TURN_MAX_MS);
    const planned = planOf(seed);
    const note = (outcome: string) => (outcomes[outcome] = (outcomes[outcome] ?? 0) + 1);
    const bystanders = await beside(friendly.path, () => runAll(stage, cases, planned, problems, note, watch));
    const { worstMs: worstTurnMs, memoryBytes, slow } = watch.stop();
    problems.push(...slow);
    if (memoryBytes > MEMORY_MAX_BYTES) problems.push(`the process held ${memoryBytes} bytes more than before`);
    problems.push(...tooMuch(await hostile.taken()), ...hostile.problems);
    return { seed, cases, outcomes, worstTurnMs, memoryBytes, bystanders, control, problems };
  } finally {
    await previews.close();
    await Promise.all([hostile.stop(), friendly.stop()]);
    process.off("uncaughtException", thrown).off("unhandledRejection", thrown);
    rmSync(directory, { recursive: true, force: true });
  }
}

export function lines({ seed, cases, outcomes, worstTurnMs, memoryBytes, bystanders, control }: Report): string[] {
  const told = ({ count, medianMs, p99Ms, worstMs }: Latencies) =>
    `median ${medianMs.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms, worst ${worstMs.toFixed(1)} ms (${count} calls)`;
  return [
    `hostile daemon, seed ${seed}: ${cases} cases, all survived; ${Object.entries(outcomes)
      .sort(([, a], [, b]) => b - a)
      .map(([name, count]) => `${name} ${count}`)
      .join(", ")}`,
    `  worst turn of the event loop ${worstTurnMs.toFixed(1)} ms of processor time; memory +${(memoryBytes / 1024 / 1024).toFixed(0)} MiB at most`,
    `  bystanders          ${told(bystanders)}`,
    `  bystanders, control ${told(control)}`,
  ];
}

interface Planned {
  readonly one: Case;
  readonly token: string;
}

/** Of each two cases one breaks an honest response off, one is drawn. */
function planOf(seed: number): (number: number) => Planned {
  const places = Object.entries(HONEST).flatMap(([path, honest]) =>
    CASES.some((one) => one.path === path)
      ? Array.from({ length: honestLength(honest) + 1 }, (_, at) => ({ path, at }))
      : [],
  );
  return (number) => {
    const chance = new Chance(seed * 1_000_003 + number);
    const own = chance.below(2 ** 31);
    if (number % 2 === 1) {
      const one = chance.pick(CASES);
      return { one, token: `${own}.r.${one.path}` };
    }
    // Spread, so that a short run covers every path, and a long one every byte.
    const place = places[((number / 2 + seed) * 7_919) % places.length];
    const one = chance.pick(CASES.filter(({ path }) => path === place?.path));
    return { one, token: `${own}.t${place?.at}.${one.path}` };
  };
}

async function runAll(
  stage: Stage,
  count: number,
  plan: (number: number) => Planned,
  problems: string[],
  note: (outcome: string) => void,
  watch?: TurnWatch,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count && problems.length < 20) {
      const number = next++;
      const { one, token } = plan(number);
      const name = `case ${number}, ${one.name}, ${token}`;
      watch?.begin(name);
      note(await outcomeOf(stage, one, token, name, problems));
      watch?.end(name);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
}

async function outcomeOf(stage: Stage, one: Case, token: string, name: string, problems: string[]): Promise<string> {
  const hung = new AbortController();
  try {
    const late = sleep(HANG_MS, "hangs", { signal: hung.signal }).catch(() => "");
    const ended = await Promise.race([one.run(stage, token).then(() => "answered"), late]);
    if (ended === "hangs") problems.push(`${name}: did not end within ${HANG_MS} ms`);
    return ended;
  } catch (error) {
    if (isSandlotError(error)) return error.code;
    if (one.path.startsWith("/v1/") && error instanceof Error && AIO_FAILURES.has(error.name)) return error.name;
    problems.push(`${name}: ended with ${stackOf(error)}`);
    return "untyped";
  } finally {
    hung.abort();
  }
}

/** The calls of a bystander during the work. */
async function beside(socketPath: string, work: () => Promise<void>): Promise<Latencies> {
  const target = { address: { path: socketPath }, sandboxId: "b", generation: 1, token: "0.h.none" };
  const attachment = await DaemonAttachment.open(target, systemWorld());
  const took: number[] = [];
  let isOver = false;
  const asking = (async () => {
    while (!isOver) {
      const before = performance.now();
      await attachment.sandbox.exec("true");
      took.push(performance.now() - before);
      await sleep(5);
    }
  })();
  await work();
  isOver = true;
  await asking;
  await attachment.close();
  took.sort((a, b) => a - b);
  const at = (share: number) => took[Math.min(took.length - 1, Math.floor(took.length * share))] ?? 0;
  return { count: took.length, medianMs: at(0.5), p99Ms: at(0.99), worstMs: at(1) };
}

/** Calls that took more of a response than allowed. */
function tooMuch(taken: readonly (readonly [string, number])[]): string[] {
  return taken.flatMap(([token, bytes]) => {
    const path = token.split(".", 3)[2] ?? "";
    const { kind } = HONEST[path] ?? {};
    if (kind !== "json") return [];
    const limit: ReplyLimit = path.startsWith("/v1/")
      ? aioLimit(path)
      : DAEMON_LIMITS[path as keyof typeof DAEMON_LIMITS];
    return bytes > limit.maxBytes + UNDERWAY_BYTES ? [`${token}: ${bytes} bytes were taken`] : [];
  });
}

async function startDouble(path: string) {
  const worker = new Worker(new URL("./double/worker.ts", import.meta.url), { workerData: { path } });
  const problems: string[] = [];
  worker.on("error", (error) => problems.push(`the double failed: ${error.message}`));
  let hear: (message: { port?: number; keyedPort?: number; taken?: [string, number][] }) => void = () => {};
  worker.on("message", (message: { port?: number; taken?: [string, number][]; problem?: string }) => {
    if (message.problem !== undefined) problems.push(`the double failed: ${message.problem}`);
    else hear(message);
  });
  const { port = 0, keyedPort = 0 } = await new Promise<{ port?: number; keyedPort?: number }>(
    (resolve) => (hear = resolve),
  );
  return {
    path,
    port,
    keyedPort,
    problems,
    taken: async () => {
      const answer = new Promise<{ taken?: [string, number][] }>((resolve) => (hear = resolve));
      worker.postMessage("taken");
      return (await answer).taken ?? [];
    },
    stop: () => worker.terminate(),
  };
}

function hastened(world: World): World {
  return {
    ...world,
    monotonicMs: () => world.monotonicMs() * HASTE,
    timer: (delayMs, fire, options) => world.timer(delayMs / HASTE, fire, options),
  };
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
