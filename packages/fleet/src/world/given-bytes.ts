/**
 * Pieces of a large file that nobody needs any more once they are written. Left to the collector, they make it look through
 * the whole heap several times per file, which costs more than writing them.
 *
 * Who reads pieces that are its own alone marks them (`give`); who has written a piece frees it (`giveBack`). Pieces of
 * callers are never marked: they may use them again.
 */

const given = new WeakSet<ArrayBufferLike>();

/** Nobody else has these bytes, and whoever writes them may free them. */
export function give<T extends Uint8Array>(bytes: T): T {
  given.add(bytes.buffer);
  return bytes;
}

/** Frees them now, where they were given. Of a buffer that others have parts of, they are only one of the parts. */
export function giveBack({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength && given.delete(buffer)) buffer.transfer(0);
}
