/**
 * The frames of a followed exec, as a reader gets them.
 *
 * Invariant: for each stream, the pieces of output and the gaps cover every byte once, in order.
 */

import { type FollowEvent, FRAME, FRAME_HEADER_BYTES, SandlotError } from "@sandlot/contract";
import { followEndSchema, parseReply } from "./replies.ts";

export interface Offsets {
  stdout: number;
  stderr: number;
}

/** No honest frame is longer. */
const PAYLOAD_MAX_BYTES = 1024 * 1024;

/** Reads frames until the end, and keeps `offsets` at what was delivered. */
export async function* readFrames(chunks: AsyncIterable<Buffer>, offsets: Offsets): AsyncGenerator<FollowEvent> {
  let held: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks) {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    while (held.length >= FRAME_HEADER_BYTES) {
      const length = held.readUInt32BE(9);
      if (length > PAYLOAD_MAX_BYTES) throw new SandlotError("internal", { problem: "the daemon sent a broken frame" });
      if (held.length < FRAME_HEADER_BYTES + length) break;
      const payload = held.subarray(FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + length);
      const event = eventOf(held.readUInt8(0), Number(held.readBigUInt64BE(1)), payload, offsets);
      held = held.subarray(FRAME_HEADER_BYTES + length);
      yield event;
      if (event.type === "end") return;
    }
  }
}

function eventOf(type: number, offset: number, payload: Buffer, offsets: Offsets): FollowEvent {
  if (type === FRAME.end) return { type: "end", end: parseReply(followEndSchema, payload) };
  const stream = type === FRAME.stdout || type === FRAME.stdoutGap ? "stdout" : "stderr";
  const fromOffset = offsets[stream];
  if (type === FRAME.stdoutGap || type === FRAME.stderrGap) {
    offsets[stream] = offset;
    return { type: "gap", stream, fromOffset, toOffset: offset };
  }
  offsets[stream] = offset + payload.length;
  const bytes = new Uint8Array(payload.buffer, payload.byteOffset, payload.length);
  return { type: "output", stream, offset, bytes };
}
