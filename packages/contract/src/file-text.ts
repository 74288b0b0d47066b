/** The text of a file. Bytes that are not UTF-8 are an error unless the caller asked for a lossy reading. */

import { SandlotError } from "./errors.ts";

export interface ReadTextOptions {
  /** The first line, counted from 1. */
  readonly startLine?: number;
  /** The last line, which is included. */
  readonly endLine?: number;
  /** Bytes that are not UTF-8 become U+FFFD instead of the error `file_not_text`. Never write such a text back. */
  readonly lossy?: boolean;
}

/** Decodes the bytes of a file, or of some lines. It keeps the byte order mark, because that belongs to the file. */
export function decodeFileText(path: string, bytes: Uint8Array, options: ReadTextOptions = {}): string {
  try {
    return new TextDecoder("utf-8", { fatal: options.lossy !== true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) throw new SandlotError("file_not_text", { path }, { cause: error });
    throw error;
  }
}

/** The requested lines; `null` for the whole file. */
export function lineRangeOf(options: ReadTextOptions = {}): { startLine: number; endLine: number | undefined } | null {
  const { startLine, endLine } = options;
  return startLine === undefined && endLine === undefined ? null : { startLine: startLine ?? 1, endLine };
}
