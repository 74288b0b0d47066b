/**
 * Running a command to its end: one question in most cases, more where it takes long or prints much.
 */

import type { AioCalls, Ask } from "../calls.ts";
import { type Progress, readOn, type Start, startCommand } from "./command.ts";
import { keptFrom, Output } from "./output.ts";
import type { Outcome } from "./script.ts";

export interface Finished {
  readonly outcome: Outcome;
  readonly stdout: Output;
  readonly stderr: Output;
}

export async function runCommand(calls: AioCalls, start: Omit<Start, "background">, ask: Ask = {}): Promise<Finished> {
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
    at.stdout = next.stdoutEnd;
    at.stderr = next.stderrEnd;
    // An end that comes with the last output may come before the last output is read.
    if (next.outcome !== null && !isNews) return { outcome: next.outcome, ...outputs };
  }
}

/** Nothing was left out: the offsets tell how much there was. */
function isWhole({ stdout, stderr, stdoutEnd, stderrEnd }: Progress): boolean {
  return Buffer.byteLength(stdout) === stdoutEnd && Buffer.byteLength(stderr) === stderrEnd;
}
