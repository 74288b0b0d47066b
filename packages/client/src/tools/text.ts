/** Text for a model: cut with a notice, counted, and distinguished from binary data. */

/** The beginning, up to a number of characters, at a line's end where there is one nearby. */
export function headOf(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const lineEnd = text.lastIndexOf("\n", maxChars);
  return text.slice(0, lineEnd > maxChars * 0.8 ? lineEnd + 1 : wholeCharacters(text, maxChars));
}

/** The end, likewise. */
export function tailOf(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const from = text.length - maxChars;
  const lineStart = text.indexOf("\n", from) + 1;
  return text.slice(lineStart > 0 && lineStart < from + maxChars * 0.2 ? lineStart : wholeCharacters(text, from));
}

/** An index that does not split a surrogate pair. */
function wholeCharacters(text: string, index: number): number {
  const unit = text.charCodeAt(index);
  return unit >= 0xdc00 && unit <= 0xdfff ? index - 1 : index;
}

export function countLines(text: string): number {
  if (text === "") return 0;
  return text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
}

export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;
}

/** Bytes decoded as text, with its byte order mark; `null` if they are not UTF-8, or contain a NUL. */
export function textOf(bytes: Uint8Array): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}
