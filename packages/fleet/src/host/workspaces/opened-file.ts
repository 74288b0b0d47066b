/**
 * A regular file of a workspace, open for reading. Its facts and its content are of the same file, whatever happens to
 * its name meanwhile.
 */

import type { FileHandle } from "node:fs/promises";
import { type FileStat, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";

export interface ByteRange {
  readonly offset?: number;
  readonly length?: number;
}

const CHUNK_BYTES = 256 * 1024;

export class OpenedFile implements AsyncDisposable {
  readonly stat: FileStat;
  readonly #handle: FileHandle;

  /** Takes the handle over. */
  constructor(stat: FileStat, handle: FileHandle) {
    this.stat = stat;
    this.#handle = handle;
  }

  /** All of it or a range, when it is not too large for memory. A range ends with the file. */
  async read(range: ByteRange = {}): Promise<Uint8Array> {
    const { length } = this.#within(range);
    const maxBytes = SANDBOX_LIMITS.readMaxBytes;
    if (length > maxBytes)
      throw new SandlotError("file_too_large", { path: this.stat.path, sizeBytes: length, maxBytes });
    const parts: Uint8Array[] = [];
    for await (const part of this.stream(range)) parts.push(part);
    return Buffer.concat(parts);
  }

  /** As many bytes as when it was opened. If the file has become shorter, this ends with an error, never early. */
  async *stream(range: ByteRange = {}): AsyncGenerator<Uint8Array> {
    const { offset, length } = this.#within(range);
    for (let done = 0; done < length; ) {
      const buffer = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, length - done));
      const { bytesRead } = await this.#handle.read(buffer, 0, buffer.length, offset + done);
      if (bytesRead === 0) {
        const { path, version: expected } = this.stat;
        throw new SandlotError("file_changed", { path, expected, actual: null });
      }
      done += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #within({ offset = 0, length = Number.POSITIVE_INFINITY }: ByteRange): { offset: number; length: number } {
    const { path, sizeBytes } = this.stat;
    if (!(offset >= 0) || !(length >= 0) || offset > sizeBytes)
      throw new SandlotError("range_not_satisfiable", { path, sizeBytes });
    return { offset, length: Math.min(length, sizeBytes - offset) };
  }
}
