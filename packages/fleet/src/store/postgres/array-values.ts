/**
 * Arrays as values of a statement. The driver's own conversion escapes each text with several searches, which costs more
 * than all else that a commit does with its rows.
 */

const TEXT_OID = 25;

/** `text[]` in the server's binary format, for which nothing is escaped. */
export function textArray(texts: readonly (string | null)[]): Buffer {
  if (texts.length === 0) return EMPTY;
  let size = 20;
  let hasNull = 0;
  for (const text of texts) {
    if (text === null) hasNull = 1;
    size += 4 + (text === null ? 0 : Buffer.byteLength(text));
  }
  const buffer = Buffer.allocUnsafe(size);
  // One dimension, whether an element is null, the type of the elements, their number, the index of the first.
  let at = 0;
  for (const word of [1, hasNull, TEXT_OID, texts.length, 1]) at = buffer.writeInt32BE(word, at);
  for (const text of texts) {
    const length = text === null ? -1 : buffer.write(text, at + 4);
    buffer.writeInt32BE(length, at);
    at += 4 + Math.max(0, length);
  }
  return buffer;
}

const EMPTY = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TEXT_OID]);

/** `bigint[]` and `boolean[]`, as text: nothing in them needs an escape. */
export function plainArray(values: readonly (number | boolean)[]): string {
  return `{${values.join(",")}}`;
}
