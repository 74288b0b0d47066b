/** Character boundaries in UTF-8 bytes that were cut anywhere. */

/** How many bytes at the front belong to an earlier character. */
export function tornBytes(bytes: Uint8Array): number {
  let count = 0;
  while (count < 3 && isContinuation(bytes[count])) count++;
  return count;
}

/** How many bytes at the end begin an incomplete character. */
export function unfinishedBytes(bytes: Uint8Array, end = bytes.length): number {
  for (let back = 1; back <= Math.min(3, end); back++) {
    const byte = bytes[end - back] ?? 0;
    if (isContinuation(byte)) continue;
    return characterLength(byte) > back ? back : 0;
  }
  return 0;
}

/** Whether a byte continues a character instead of beginning one. */
export function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

function characterLength(first: number): number {
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}
