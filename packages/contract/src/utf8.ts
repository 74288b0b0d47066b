/** Where characters begin and end in bytes of UTF-8 that were cut anywhere. */

/** How many bytes at the front belong to a character that began before. */
export function tornBytes(bytes: Uint8Array): number {
  let count = 0;
  while (count < 3 && isContinuation(bytes[count])) count++;
  return count;
}

/** How many bytes at the end are the beginning of a character whose rest has not come. */
export function unfinishedBytes(bytes: Uint8Array, end = bytes.length): number {
  for (let back = 1; back <= Math.min(3, end); back++) {
    const byte = bytes[end - back] ?? 0;
    if (isContinuation(byte)) continue;
    return characterLength(byte) > back ? back : 0;
  }
  return 0;
}

/** Whether a byte goes on with a character, rather than beginning one. */
export function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

function characterLength(first: number): number {
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}
