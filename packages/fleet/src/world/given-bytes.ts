/**
 * Frees chunks of a large file once they are written. Left to the garbage collector, they cause several scans of the
 * whole heap per file, which cost more than writing them.
 *
 * A reader that owns its chunks marks them (`give`); the writer frees a chunk after writing it (`giveBack`). Chunks of
 * callers are never marked: they may reuse them.
 */

const given = new WeakSet<ArrayBufferLike>();

/** No other code has these bytes, and their writer may free them. */
export function give<T extends Uint8Array>(bytes: T): T {
  given.add(bytes.buffer);
  return bytes;
}

/** Frees them now, if they were given. Not if they are only a part of their buffer. */
export function giveBack({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength && given.delete(buffer)) buffer.transfer(0);
}
