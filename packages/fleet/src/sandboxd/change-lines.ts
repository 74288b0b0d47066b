/** Parses the lines of a watch: one JSON object each. */

import { type FileChange, fileChangeSchema } from "@sandlot/contract";
import { STREAM_LIMITS } from "../untrusted/limits.ts";
import type { UnitGuard } from "../untrusted/units.ts";
import { badResponse, parseShort } from "./replies.ts";

const NEWLINE = 0x0a;

export async function* readChanges(chunks: AsyncIterable<Uint8Array>, guard: UnitGuard): AsyncGenerator<FileChange> {
  /** An incomplete line: a buffer of the maximum length, allocated when it is first needed. */
  const held = { bytes: Buffer.alloc(0), length: 0 };
  const hold = (part: Buffer): void => {
    if (held.length + part.length > STREAM_LIMITS.lineMaxBytes)
      throw badResponse("its daemon sent a line without an end");
    if (held.bytes.length === 0) held.bytes = Buffer.allocUnsafeSlow(STREAM_LIMITS.lineMaxBytes);
    part.copy(held.bytes, held.length);
    held.length += part.length;
  };
  try {
    for await (const given of chunks) {
      const chunk = Buffer.from(given.buffer, given.byteOffset, given.byteLength);
      let at = 0;
      for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, at)) {
        hold(chunk.subarray(at, end));
        const line = held.bytes.subarray(0, held.length);
        held.length = 0;
        at = end + 1;
        yield parseShort(fileChangeSchema, line);
        await guard.passed();
      }
      hold(chunk.subarray(at));
      guard.waits(held.length > 0);
    }
  } finally {
    guard.stop();
  }
}
