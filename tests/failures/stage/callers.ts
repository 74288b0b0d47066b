/**
 * Callers of threads: each runs one command after the other in its own thread, and keeps a journal inside the sandbox.
 *
 * - A command is acknowledged when its response has arrived. After a fault every acknowledged line must be in the
 *   journal: a missing one is a lost write.
 * - Busy callers pause briefly, so the gateway keeps their lease. Resting ones pause for longer than a gateway keeps a
 *   lease, so each of their calls takes the thread's sandbox anew, through the store.
 * - A caller that gets an error asks the next gateway at once, and the same again shortly after.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { GatewayProcess } from "./gateway-process.ts";

const BUSY_MS = 100;
/** Longer than a gateway keeps a lease after a request. */
const RESTING_MS = 1_400;
const RETRY_MS = 100;
/** The patience of a caller. Far more than a command takes, also on a busy machine. */
const CALL_MS = 3_000;
/** Its patience with the first call, which makes the sandbox. */
const FIRST_CALL_MS = 60_000;
/** Every thread is usable again when it has answered without an error for this long. */
const STEADY_MS = 3_000;

interface Attempt {
  readonly startedAt: number;
  readonly endedAt: number;
  /** `null`: it was answered. */
  readonly problem: string | null;
}

export class Caller {
  readonly thread: string;
  readonly attempts: Attempt[] = [];
  readonly acknowledged: string[] = [];
  readonly #gateways: () => readonly GatewayProcess[];
  readonly #pauseMs: number;
  readonly #stop = new AbortController();
  #preferred: number;
  #count = 0;
  #running: Promise<void> | null = null;

  constructor(index: number, gateways: () => readonly GatewayProcess[]) {
    this.thread = `t${index}`;
    this.#gateways = gateways;
    this.#preferred = index;
    this.#pauseMs = index % 4 < 2 ? BUSY_MS : RESTING_MS;
  }

  start(): void {
    this.#running = this.#run();
  }

  async end(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  /** The acknowledged lines that the journal lacks. */
  async lost(): Promise<number> {
    const { stdout } = await this.#exec("cat journal 2>/dev/null || true", 30_000);
    const lines = new Set(stdout.split("\n"));
    return this.acknowledged.filter((line) => !lines.has(line)).length;
  }

  /**
   * When it was usable for good after `since`; `null`: not yet. Without a failed call that is the time that the first
   * call has waited: the caller's own pause is not the fault's.
   */
  usableAt(since: number): number | null {
    const after = this.attempts.filter(({ endedAt }) => endedAt >= since);
    const lastFailure = after.findLastIndex(({ problem }) => problem !== null);
    const answered = after.slice(lastFailure + 1);
    const [first] = answered;
    const last = answered.at(-1);
    if (first === undefined || last === undefined || last.startedAt < since) return null;
    if (lastFailure < 0) return since + first.endedAt - Math.max(first.startedAt, since);
    return last.endedAt - first.endedAt < STEADY_MS ? null : first.endedAt;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const startedAt = performance.now();
      this.#count += 1;
      const line = `${this.thread}-${this.#count}`;
      const patienceMs = this.acknowledged.length === 0 ? FIRST_CALL_MS : CALL_MS;
      const problem = await this.#exec(`echo ${line} >> journal`, patienceMs).then(
        () => null,
        (error: unknown) => (error instanceof Error ? error.message : String(error)),
      );
      this.attempts.push({ startedAt, endedAt: performance.now(), problem });
      if (problem === null) this.acknowledged.push(line);
      else this.#preferred += 1;
      await sleep(problem === null ? this.#pauseMs : RETRY_MS, undefined, { signal: this.#stop.signal }).catch(
        () => {},
      );
    }
  }

  async #exec(command: string, timeoutMs: number): Promise<{ readonly stdout: string }> {
    const gateways = this.#gateways();
    const gateway = gateways[this.#preferred % Math.max(1, gateways.length)];
    if (gateway === undefined) throw new Error("no gateway");
    const response = await fetch(`${gateway.url}/v1/threads/${this.thread}/exec`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.key}`, "content-type": "application/json" },
      body: JSON.stringify({ command }),
      signal: AbortSignal.timeout(timeoutMs),
    });
    const body = (await response.json()) as { stdout?: string; exitCode?: number; error?: { code: string } };
    if (body.error !== undefined) throw new Error(body.error.code);
    if (body.exitCode !== 0) throw new Error(`the command ended with ${String(body.exitCode)}`);
    return { stdout: body.stdout ?? "" };
  }
}

/** The moment when the last thread was usable for good after `since`. */
export async function allUsable(callers: readonly Caller[], since: number, patienceMs: number): Promise<number> {
  const until = performance.now() + patienceMs;
  for (;;) {
    const times = callers.map((caller) => caller.usableAt(since));
    const usable = times.filter((at) => at !== null);
    if (usable.length === callers.length) return Math.max(...usable);
    if (performance.now() > until) throw new Error(`not usable after ${patienceMs} ms: ${unusable(callers, since)}`);
    await sleep(50);
  }
}

function unusable(callers: readonly Caller[], since: number): string {
  const waiting = callers.filter((caller) => caller.usableAt(since) === null);
  return waiting
    .map(({ thread, attempts }) => `${thread} (${attempts.at(-1)?.problem ?? "too few answers"})`)
    .join(", ");
}
