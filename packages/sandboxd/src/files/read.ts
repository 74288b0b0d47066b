/**
 * Reads a file: a range of bytes, a range of lines, or all of it as a stream.
 *
 * Invariants
 * - Only regular files and devices are opened for reading, and opening never blocks: a planted FIFO must not hold a
 *   thread for ever.
 * - A response that is not streamed has at most `readMaxBytes`; more is `file_too_large`, before a byte was sent.
 */

import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { aboutPath, NOT_A_FILE } from "./file-error.ts";

/** The destination of the bytes. Resolves when it takes more; rejects when the reader is gone. */
export interface ByteSink {
  /** Called once, before the first bytes. `sizeBytes` is `null` when it is unknown. */
  begin(sizeBytes: number | null): void;
  write(bytes: Uint8Array): Promise<void>;
}

/** Large enough that copying dominates the cost of a step. Two are in use at a time. */
const STEP_BYTES = 256 * 1024;
const NEWLINE = 0x0a;

/** A range of bytes; without `length`, the rest of the file from `offset`. */
export function readBytes(path: string, range: { offset?: number; length?: number }, sink: ByteSink): Promise<void> {
  return withFile(path, async (file, sizeBytes) => {
    const offset = range.offset ?? 0;
    const maxBytes = SANDBOX_LIMITS.readMaxBytes;
    const asked = range.length ?? Number.POSITIVE_INFINITY;
    if (sizeBytes > 0) {
      const wanted = Math.min(asked, Math.max(0, sizeBytes - offset));
      if (wanted > maxBytes) throw new SandlotError("file_too_large", { path, sizeBytes: wanted, maxBytes });
      await send(path, file, offset, wanted, sink);
      return;
    }
    // A file of /proc reports 0 and has content; its size is known only at its end.
    const bytes = await readToEnd(file, offset, Math.min(asked, maxBytes + 1));
    if (bytes.length > maxBytes) throw new SandlotError("file_too_large", { path, sizeBytes: bytes.length, maxBytes });
    sink.begin(bytes.length);
    await sink.write(bytes);
  });
}

/** Lines without the newline of the last one: lines are joined, not cut out. */
export function readLines(path: string, startLine: number, endLine: number): Promise<Buffer> {
  return withFile(path, async (file) => {
    const maxBytes = SANDBOX_LIMITS.readMaxBytes;
    const parts: Buffer[] = [];
    let size = 0;
    let line = 1;
    for (let position = 0; line <= endLine; ) {
      const step = Buffer.allocUnsafe(STEP_BYTES);
      const { bytesRead } = await file.read(step, 0, STEP_BYTES, position);
      if (bytesRead === 0) break;
      position += bytesRead;
      const block = step.subarray(0, bytesRead);
      let at = 0;
      for (; line < startLine && at < block.length; ) {
        const next = block.indexOf(NEWLINE, at);
        at = next < 0 ? block.length : next + 1;
        if (next >= 0) line++;
      }
      const from = at;
      for (; line >= startLine && line <= endLine && at < block.length; ) {
        const next = block.indexOf(NEWLINE, at);
        at = next < 0 ? block.length : next + 1;
        if (next >= 0) line++;
      }
      if (line < startLine) continue;
      parts.push(block.subarray(from, at));
      size += at - from;
      if (size > maxBytes) throw new SandlotError("file_too_large", { path, sizeBytes: size, maxBytes });
    }
    const bytes = Buffer.concat(parts);
    return bytes.at(-1) === NEWLINE ? bytes.subarray(0, -1) : bytes;
  });
}

/** A whole file or a range, of any size. */
export function download(path: string, range: { offset?: number; length?: number }, sink: ByteSink): Promise<void> {
  return withFile(path, (file, sizeBytes) => {
    const { offset = 0, length = Number.POSITIVE_INFINITY } = range;
    // A file of /proc reports 0 and has content; its size is known only at its end.
    const known = sizeBytes > 0 || length === 0;
    return send(path, file, offset, known ? Math.min(length, Math.max(0, sizeBytes - offset)) : null, sink, length);
  });
}

/**
 * Sends exactly `length` bytes, or all up to `atMost` when it is `null`: reads one step while the previous one is sent.
 */
async function send(
  path: string,
  file: FileHandle,
  offset: number,
  length: number | null,
  sink: ByteSink,
  atMost = Number.POSITIVE_INFINITY,
): Promise<void> {
  sink.begin(length);
  const end = offset + (length ?? atMost);
  const stepBytes = Math.min(STEP_BYTES, end - offset);
  const buffers = [Buffer.allocUnsafe(stepBytes)];
  let sending: Promise<void> = Promise.resolve();
  let at = offset;
  for (let turn = 0; at < end; turn ^= 1) {
    buffers[turn] ??= Buffer.allocUnsafe(stepBytes);
    const buffer = buffers[turn] as Buffer;
    // Not more than announced: the file may grow meanwhile.
    const { bytesRead } = await file.read(buffer, 0, Math.min(stepBytes, end - at), at);
    await sending;
    if (bytesRead === 0) break;
    at += bytesRead;
    sending = sink.write(buffer.subarray(0, bytesRead));
    // The `await` below reports it; until then a failure must not be unhandled.
    sending.catch(() => {});
  }
  await sending;
  if (length !== null && at < end) throw new Error(`${path} became shorter while it was sent`);
}

async function withFile<T>(path: string, work: (file: FileHandle, sizeBytes: number) => Promise<T>): Promise<T> {
  return aboutPath(path, async () => {
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await file.stat();
      if (stat.isDirectory()) throw new SandlotError("is_a_directory", { path });
      if (!stat.isFile() && !stat.isCharacterDevice())
        throw new SandlotError("invalid_path", { path, problem: NOT_A_FILE });
      return await work(file, stat.size);
    } finally {
      await file.close();
    }
  });
}

async function readToEnd(file: FileHandle, offset: number, max: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  while (size < max) {
    const step = Buffer.allocUnsafe(Math.min(max - size, STEP_BYTES));
    const { bytesRead } = await file.read(step, 0, step.length, offset + size);
    if (bytesRead === 0) break;
    parts.push(step.subarray(0, bytesRead));
    size += bytesRead;
  }
  return Buffer.concat(parts);
}
