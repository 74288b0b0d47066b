/**
 * The files of a sandbox, through its daemon.
 */

import type { IncomingMessage } from "node:http";
import {
  checkFileMode,
  decodeFileText,
  type FileChange,
  type FileListing,
  type FileStat,
  fileChangeSchema,
  fileListingSchema,
  fileStatSchema,
  type GlobOptions,
  type GlobResult,
  type GrepOptions,
  type GrepResult,
  globReplySchema,
  lineRangeOf,
  type ReadTextOptions,
  type SandboxFiles,
  SandlotError,
  type WatchOptions,
  type WriteOptions,
} from "@sandlot/contract";
import type { z } from "zod";
import { readOn } from "../untrusted/download.ts";
import { STREAM_LIMITS } from "../untrusted/limits.ts";
import { UnitGuard } from "../untrusted/units.ts";
import type { Calls } from "./held-daemon.ts";
import { badResponse, grepResultSchema, nothingSchema, parseShort } from "./replies.ts";
import { Source, upload } from "./upload.ts";
import { type Call, encode } from "./wire.ts";

type Named = "mkdir" | "rename" | "remove" | "stat" | "list" | "glob" | "grep";
type Range = { readonly offset?: number; readonly length?: number };

export class DaemonFiles implements SandboxFiles {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  async read(path: string, range: Range = {}): Promise<Uint8Array> {
    const bytes = await this.#read({ path, offset: range.offset, length: range.length });
    return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  async readText(path: string, options?: ReadTextOptions): Promise<string> {
    return decodeFileText(path, await this.#read({ path, ...lineRangeOf(options) }), options);
  }

  async write(path: string, content: string | Uint8Array, options: WriteOptions = {}): Promise<void> {
    await this.#send("PUT", "write", { path, ...writeQuery(options) }, encode(content));
  }

  append(path: string, content: string | Uint8Array): Promise<void> {
    return this.#send("POST", "append", { path }, encode(content));
  }

  async upload(path: string, content: AsyncIterable<Uint8Array>, options: WriteOptions = {}): Promise<void> {
    const query = { path: checked(path), ...writeQuery(options) };
    const source = new Source(content);
    try {
      await this.#calls.attempt((wire) => upload(wire, "/sandlot/files/upload", query, source));
    } catch (error) {
      // A failure of the caller's content is the caller's own error, and says nothing about the sandbox.
      throw source.failure === null ? error : source.failure.error;
    }
  }

  async *download(path: string, range: Range = {}): AsyncGenerator<Uint8Array> {
    const query = { path: checked(path), offset: range.offset, length: range.length };
    const { timer } = this.#calls.world;
    const call = { method: "GET", path: "/sandlot/files/download", query } as const;
    yield* this.#stream(call, (response) => readOn(response, timer));
  }

  async *watch(path: string, options: WatchOptions = {}): AsyncGenerator<FileChange> {
    const { recursive = true, signal } = options;
    const query = { path: checked(path), recursive: recursive ? 1 : 0 };
    const call = { method: "GET", path: "/sandlot/files/watch", query, ...(signal && { signal }) } as const;
    const { timer } = this.#calls.world;
    yield* this.#stream(call, (response) => readChanges(response, new UnitGuard(response, timer)));
  }

  async mkdir(path: string): Promise<void> {
    await this.#post(nothingSchema, "mkdir", { path: checked(path) });
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#post(nothingSchema, "rename", { from: checked(from), to: checked(to) });
  }

  async remove(path: string, options: { readonly recursive?: boolean } = {}): Promise<void> {
    await this.#post(nothingSchema, "remove", { path: checked(path), recursive: options.recursive });
  }

  stat(path: string): Promise<FileStat> {
    return this.#post(fileStatSchema, "stat", { path: checked(path) });
  }

  list(path: string, options: { readonly depth?: number; readonly maxResults?: number } = {}): Promise<FileListing> {
    const { depth, maxResults } = options;
    return this.#post(fileListingSchema, "list", { path: checked(path), depth, maxResults });
  }

  glob(path: string, pattern: string, options: GlobOptions = {}): Promise<GlobResult> {
    return this.#post(globReplySchema, "glob", { path: checked(path), pattern, ...options });
  }

  grep(path: string, pattern: string, options: GrepOptions = {}): Promise<GrepResult> {
    return this.#post(grepResultSchema, "grep", { path: checked(path), pattern, ...options });
  }

  async #read(query: { path: string } & Record<string, string | number | undefined>): Promise<Buffer> {
    const call = {
      method: "GET",
      path: "/sandlot/files/read",
      query: { ...query, path: checked(query.path) },
    } as const;
    return this.#calls.attempt((wire) => wire.bytes(call));
  }

  async #send(
    method: "PUT" | "POST",
    name: "write" | "append",
    query: { path: string } & Record<string, string | number | undefined>,
    body: Uint8Array,
  ): Promise<void> {
    const path = `/sandlot/files/${name}` as const;
    const call = { method, path, query: { ...query, path: checked(query.path) }, body };
    await this.#calls.attempt((wire) => wire.ask(nothingSchema, call));
  }

  async *#stream<T>(call: Call, read: (response: IncomingMessage) => AsyncIterable<T>): AsyncGenerator<T> {
    const { signal } = call;
    const response = await this.#calls.attempt((wire) => wire.open(call), signal);
    try {
      yield* read(response);
    } catch (error) {
      signal?.throwIfAborted();
      throw (await this.#calls.explain(error)).error;
    } finally {
      response.destroy();
    }
  }

  async #post<T>(schema: z.ZodType<T>, name: Named, fields: object): Promise<T> {
    return this.#calls.post(schema, `/sandlot/files/${name}`, fields);
  }
}

/** Text that is not well-formed cannot be encoded; the daemon checks everything else. */
function checked(path: string): string {
  if (typeof path === "string" && path.isWellFormed()) return path;
  throw new SandlotError("invalid_path", { path: String(path), problem: "it is not well-formed text" });
}

function writeQuery({ mode, ifVersion }: WriteOptions): Record<string, string | number | undefined> {
  checkFileMode(mode);
  return ifVersion === null ? { mode, ifAbsent: 1 } : { mode, ifVersion };
}

const NEWLINE = 0x0a;

/** Parses the lines of a watch: one JSON object each. */
async function* readChanges(chunks: AsyncIterable<Uint8Array>, guard: UnitGuard): AsyncGenerator<FileChange> {
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
