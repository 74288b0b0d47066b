/** Runs a command to its end: one request in most cases, more if it takes long or prints much. */

import { SANDBOX_LIMITS } from "@sandlot/contract";
import { PATIENCE_MS } from "../../../untrusted/limits.ts";
import { sleep } from "../../../world/waiting.ts";
import type { AioCalls, Ask } from "../calls.ts";
import { type Progress, readOn, type Start, startCommand } from "./command.ts";
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

/** A command's output, from the server's byte offsets: the newest bytes up to the limit, and how many came before. */
const MAX_BYTES = SANDBOX_LIMITS.execOutputMaxBytes;

class Output {
  readonly #parts: Buffer[] = [];
  #heldBytes = 0;
  #endOffset = 0;

  /** The total size. */
  get endOffset(): number {
    return this.#endOffset;
  }

  /** `endOffset` is the server's offset after this text; undecodable text may have another length. */
  add(text: string, endOffset: number): void {
    const bytes = Buffer.from(text, "utf8");
    this.#parts.push(bytes);
    this.#heldBytes += bytes.length;
    this.#endOffset = Math.max(endOffset, this.#endOffset + (endOffset === 0 ? bytes.length : 0));
    while (this.#heldBytes > MAX_BYTES) this.#shorten(this.#heldBytes - MAX_BYTES);
  }

  /** The last `maxBytes` as text, and how much is missing before them. */
  tail(maxBytes: number): { readonly text: string; readonly droppedBytes: number; readonly omittedBytes: number } {
    const whole = Buffer.concat(this.#parts, this.#heldBytes);
    let omittedBytes = Math.max(0, whole.length - maxBytes);
    // Not from the middle of a character.
    while (omittedBytes > 0 && ((whole[omittedBytes] ?? 0) & 0xc0) === 0x80) omittedBytes++;
    const droppedBytes = Math.max(0, this.#endOffset - this.#heldBytes);
    return { text: whole.toString("utf8", omittedBytes), droppedBytes, omittedBytes };
  }

  #shorten(byBytes: number): void {
    const first = this.#parts.shift() ?? Buffer.alloc(0);
    if (first.length > byBytes) this.#parts.unshift(first.subarray(byBytes));
    this.#heldBytes -= Math.min(first.length, byBytes);
  }
}

/** The offset to read from, to get what is kept of so many bytes. */
function keptFrom(endOffset: number): number {
  return Math.max(0, endOffset - MAX_BYTES);
}
