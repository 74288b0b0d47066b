/**
 * Parses the frames of a followed exec.
 *
 * Invariants
 * - For each stream, the pieces of output and the gaps cover every byte once, in order. Anything else is an error.
 * - Frames of an unknown type are skipped, up to a limit at a time.
 * - An incomplete frame takes no more memory than its maximum size, also when it arrives in tiny pieces.
 */

import { type FollowEvent, FRAME, FRAME_HEADER_BYTES, followEndSchema, type SandlotError } from "@sandlot/contract";
import { STREAM_LIMITS } from "../untrusted/limits.ts";
import type { UnitGuard } from "../untrusted/units.ts";
import { badResponse, parseShort } from "./replies.ts";

export interface Offsets {
  stdout: number;
  stderr: number;
}

/** Reads frames until the end, and keeps `offsets` at what was delivered. */
export async function* readFrames(
  chunks: AsyncIterable<Buffer>,
  offsets: Offsets,
  guard: UnitGuard,
): AsyncGenerator<FollowEvent> {
  const frames = new Frames();
  let unknownBytes = 0;
  try {
    for await (const chunk of chunks) {
      frames.add(chunk);
      for (let frame = frames.next(); frame !== null; frame = frames.next()) {
        const event = eventOf(frame, offsets);
        unknownBytes = event === null ? unknownBytes + frame.length : 0;
        if (unknownBytes > STREAM_LIMITS.unknownMaxBytes) throw broken();
        if (event === null) {
          await guard.passed();
          continue;
        }
        // From here on the reader is slow, not the daemon.
        guard.stop();
        yield event;
        if (event.type === "end") return;
        await guard.passed();
      }
      guard.waits(frames.hasPart);
    }
  } finally {
    guard.stop();
  }
}

/** Assembles frames from pieces. */
class Frames {
  /** Received bytes that are not part of `#partial`. */
  #rest: Buffer = Buffer.alloc(0);
  /** A frame of known length, as far as it has arrived. */
  #partial: { readonly bytes: Buffer; filled: number } | null = null;

  get hasPart(): boolean {
    return this.#rest.length > 0 || this.#partial !== null;
  }

  add(chunk: Buffer): void {
    // The rest is shorter than a header.
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
  }

  /** The next complete frame, with its header. */
  next(): Buffer | null {
    if (this.#partial === null) {
      if (this.#rest.length < FRAME_HEADER_BYTES) return null;
      const length = this.#rest.readUInt32BE(9);
      if (length > STREAM_LIMITS.frameMaxBytes) throw broken();
      const whole = FRAME_HEADER_BYTES + length;
      if (this.#rest.length >= whole) return this.#cut(whole);
      this.#partial = { bytes: Buffer.allocUnsafeSlow(whole), filled: 0 };
    }
    const { bytes, filled } = this.#partial;
    const part = this.#cut(Math.min(bytes.length - filled, this.#rest.length));
    part.copy(bytes, filled);
    this.#partial.filled += part.length;
    if (this.#partial.filled < bytes.length) return null;
    this.#partial = null;
    return bytes;
  }

  #cut(length: number): Buffer {
    const part = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(length);
    return part;
  }
}

/** `null` for a frame of an unknown type. */
function eventOf(frame: Buffer, offsets: Offsets): FollowEvent | null {
  const type = frame.readUInt8(0);
  const offset = Number(frame.readBigUInt64BE(1));
  const payload = frame.subarray(FRAME_HEADER_BYTES);
  switch (type) {
    case FRAME.end:
      return { type: "end", end: parseShort(followEndSchema, payload) };
    case FRAME.stdout:
      return outputOf("stdout", offset, payload, offsets);
    case FRAME.stderr:
      return outputOf("stderr", offset, payload, offsets);
    case FRAME.stdoutGap:
      return gapOf("stdout", offset, payload, offsets);
    case FRAME.stderrGap:
      return gapOf("stderr", offset, payload, offsets);
    default:
      return null;
  }
}

function outputOf(stream: keyof Offsets, offset: number, payload: Buffer, offsets: Offsets): FollowEvent {
  if (offset !== offsets[stream] || payload.length === 0) throw broken();
  offsets[stream] = offset + payload.length;
  return { type: "output", stream, offset, bytes: new Uint8Array(payload.buffer, payload.byteOffset, payload.length) };
}

function gapOf(stream: keyof Offsets, toOffset: number, payload: Buffer, offsets: Offsets): FollowEvent {
  const fromOffset = offsets[stream];
  if (!Number.isSafeInteger(toOffset) || toOffset <= fromOffset || payload.length > 0) throw broken();
  offsets[stream] = toOffset;
  return { type: "gap", stream, fromOffset, toOffset };
}

function broken(): SandlotError {
  return badResponse("its daemon sent a broken frame");
}
