/**
 * The output of a command until now. It is read by following the command up to its output at the time of the call, so
 * every backend that can follow supports it.
 *
 * Invariant: a part is whole characters and ends within `maxBytes`; a reader that goes on at `nextOffset` gets every
 * byte that is held exactly once.
 */

import {
  EXEC_STATUSES,
  type FollowEvent,
  OUTPUT_MIN_BYTES,
  type OutputOptions,
  type OutputPart,
  type OutputSoFar,
  SANDBOX_LIMITS,
  type SandboxExecs,
  SandlotError,
  tornBytes,
  unfinishedBytes,
} from "@sandlot/contract";
import type { World } from "../world/world.ts";

/** The output is held already; a sandbox that does not send it within this time never will. */
const READING_MAX_MS = 30_000;

type Stream = "stdout" | "stderr";

/** How much of each stream the caller requests. */
export function outputMaxBytes({ maxBytes = SANDBOX_LIMITS.execResultMaxBytes }: OutputOptions): number {
  const max = SANDBOX_LIMITS.execOutputMaxBytes;
  if (Number.isInteger(maxBytes) && maxBytes >= OUTPUT_MIN_BYTES && maxBytes <= max) return maxBytes;
  const problem = `it is a whole number from ${OUTPUT_MIN_BYTES} to ${max}`;
  throw new SandlotError("invalid_request", { field: "maxBytes", problem });
}

/** The offset of each stream from which the caller reads. */
export function outputFrom({ from }: OutputOptions): Readonly<Record<Stream, number>> {
  const { stdout = 0, stderr = 0 } = from ?? {};
  for (const [stream, offset] of Object.entries({ stdout, stderr }))
    if (!Number.isSafeInteger(offset) || offset < 0)
      throw new SandlotError("invalid_request", { field: `from.${stream}`, problem: "it is no offset of a byte" });
  return { stdout, stderr };
}

export async function outputSoFar(
  execs: Pick<SandboxExecs, "list" | "follow">,
  world: Pick<World, "timer">,
  execId: string,
  options: OutputOptions = {},
): Promise<OutputSoFar> {
  const [from, maxBytes] = [outputFrom(options), outputMaxBytes(options)];
  options.signal?.throwIfAborted();
  const known = (await execs.list()).find((one) => one.execId === execId);
  if (known === undefined) throw new SandlotError("exec_not_found", { execId });
  // A status of a later version may mean either: read what is there, and wait for nothing.
  const isOver = EXEC_STATUSES.some((status) => status === known.status);
  const totals = { stdout: known.stdoutBytes, stderr: known.stderrBytes };
  const parts = { stdout: new Part(from.stdout, maxBytes), stderr: new Part(from.stderr, maxBytes) };
  /** For an ended command, the end states the total: a backend may add a line of its own. */
  const isEnough = () =>
    (["stdout", "stderr"] as const).every((name) => parts[name].isFull || (!isOver && parts[name].end >= totals[name]));
  const late = new SandlotError("wait_timeout", { waitedFor: `output of ${execId}`, timeoutMs: READING_MAX_MS });
  const deadline = new AbortController();
  const timer = world.timer(READING_MAX_MS, () => deadline.abort(late));
  const signal = options.signal === undefined ? deadline.signal : AbortSignal.any([options.signal, deadline.signal]);
  try {
    if (!isEnough())
      for await (const event of execs.follow(execId, { from, hold: false, signal })) {
        if (event.type === "end") {
          totals.stdout = event.end.stdoutBytes;
          totals.stderr = event.end.stderrBytes;
          break;
        }
        parts[event.stream].take(event);
        if (isEnough()) break;
      }
  } finally {
    timer.cancel();
  }
  const { status, exitCode } = known;
  const part = (name: Stream) => parts[name].text(Math.max(totals[name], parts[name].end), isOver);
  return { execId, status, exitCode, stdout: part("stdout"), stderr: part("stderr") };
}

class Part {
  readonly #asked: number;
  readonly #maxBytes: number;
  readonly #pieces: Uint8Array[] = [];
  #start: number;
  #heldBytes = 0;
  #hasGap = false;

  constructor(from: number, maxBytes: number) {
    this.#asked = from;
    this.#start = from;
    this.#maxBytes = maxBytes;
  }

  get end(): number {
    return this.#start + this.#heldBytes;
  }

  get isFull(): boolean {
    return this.#hasGap || this.#heldBytes >= this.#maxBytes;
  }

  take(event: Exclude<FollowEvent, { readonly type: "end" }>): void {
    if (this.isFull) return;
    if (event.type === "output") {
      const piece = event.bytes.subarray(0, this.#maxBytes - this.#heldBytes);
      this.#pieces.push(piece);
      this.#heldBytes += piece.byteLength;
    } else if (this.#heldBytes === 0) this.#start = event.toOffset;
    // A part has no hole: the next one begins behind the gap.
    else this.#hasGap = true;
  }

  text(totalBytes: number, isOver: boolean): OutputPart {
    const bytes = Buffer.concat(this.#pieces);
    return outputPart(bytes, { asked: this.#asked, offset: this.#start, totalBytes, isOver });
  }
}

/** Bytes from `offset` on as text. Half a character at the end is left for the next part, unless nothing follows. */
export function outputPart(
  bytes: Buffer,
  at: { readonly asked: number; readonly offset: number; readonly totalBytes: number; readonly isOver: boolean },
): OutputPart {
  const { asked, offset, totalBytes, isOver } = at;
  // The bytes before this offset are dropped, so it may lie within a character.
  const torn = offset > asked ? tornBytes(bytes) : 0;
  const isLast = isOver && offset + bytes.length >= totalBytes;
  const whole = isLast ? bytes.length : bytes.length - unfinishedBytes(bytes);
  const [from, to] = [Math.min(torn, whole), whole];
  return {
    text: bytes.toString("utf8", from, to),
    offset: offset + from,
    nextOffset: offset + to,
    totalBytes,
  };
}
