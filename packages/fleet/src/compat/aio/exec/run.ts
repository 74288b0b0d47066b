/** Runs a command to its end: one request in most cases, more if it takes long or prints much. */

import { PATIENCE_MS } from "../../../untrusted/limits.ts";
import { sleep } from "../../../world/waiting.ts";
import type { AioCalls, Ask } from "../calls.ts";
import { type Progress, readOn, type Start, startCommand } from "./command.ts";
import { keptFrom, Output } from "./output.ts";
import type { Outcome } from "./script.ts";

/** The minimum interval for a server that responds at once although it was asked to wait. */
const PAUSE_MS = 50;

export interface Finished {
  readonly outcome: Outcome;
  readonly stdout: Output;
  readonly stderr: Output;
}

export async function runCommand(calls: AioCalls, start: Omit<Start, "background">, ask: Ask = {}): Promise<Finished> {
  const untilMs = deadlineOf(calls, start.timeoutMs);
  const first = await startCommand(calls, { ...start, background: false }, ask);
  const outputs = { stdout: new Output(), stderr: new Output() };
  if (first.outcome !== null && isWhole(first)) {
    outputs.stdout.add(first.stdout, first.stdoutEnd);
    outputs.stderr.add(first.stderr, first.stderrEnd);
    return { outcome: first.outcome, ...outputs };
  }
  const at = { stdout: keptFrom(first.stdoutEnd), stderr: keptFrom(first.stderrEnd) };
  for (let wait = false; ; wait = true) {
    const next = await readOn(calls, { sessionId: start.sessionId, commandId: first.commandId, ...at }, wait, ask);
    outputs.stdout.add(next.stdout, next.stdoutEnd);
    outputs.stderr.add(next.stderr, next.stderrEnd);
    const isNews = next.stdoutEnd > at.stdout || next.stderrEnd > at.stderr;
    if (calls.world.monotonicMs() > untilMs) throw calls.unreachable("its server does not keep time");
    if (wait && !isNews && next.outcome === null) await sleep(calls.world, PAUSE_MS, ask.signal);
    at.stdout = next.stdoutEnd;
    at.stderr = next.stderrEnd;
    // The end may be reported before the last output is read.
    if (next.outcome !== null && !isNews) return { outcome: next.outcome, ...outputs };
  }
}

/** The server keeps the time. A server that still reports the command long after its timeout will not end it. */
function deadlineOf(calls: AioCalls, timeoutMs: number): number {
  return timeoutMs > 0 ? calls.world.monotonicMs() + timeoutMs + PATIENCE_MS : Number.POSITIVE_INFINITY;
}

/** Nothing was left out: the offsets show the total size. */
function isWhole({ stdout, stderr, stdoutEnd, stderrEnd }: Progress): boolean {
  return Buffer.byteLength(stdout) === stdoutEnd && Buffer.byteLength(stderr) === stderrEnd;
}
