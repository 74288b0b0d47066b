/** Files over HTTP. A broken download resumes, as long as the file is unchanged. */

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
  grepReplySchema,
  type ReadTextOptions,
  SANDBOX_LIMITS,
  type SandboxFiles,
  SandlotError,
  type WatchOptions,
  type WriteOptions,
} from "@sandlot/contract";
import type { z } from "zod";
import { streamBody, toBytes } from "../wire/bytes.ts";
import { around, pause } from "../wire/clock.ts";
import { ConnectionBroken, errorOfEvent, isBreak, readResponse, unreachable } from "../wire/errors.ts";
import { serverEvents } from "../wire/events.ts";
import type { Call, Query } from "../wire/transport.ts";
import { pathOf, type RemoteThread } from "./thread-path.ts";

type Range = { readonly offset?: number; readonly length?: number };

/** How often in a row a download is resumed without a single byte, and the first delay. */
const RESUMES_MAX = 5;
const RESUME_MS = 50;

export class RemoteFiles implements SandboxFiles {
  readonly #remote: RemoteThread;

  constructor(remote: RemoteThread) {
    this.#remote = remote;
  }

  async read(path: string, range: Range = {}): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    let size = 0;
    for await (const piece of this.download(path, range)) {
      pieces.push(piece);
      size += piece.byteLength;
      if (size > SANDBOX_LIMITS.readMaxBytes)
        throw new SandlotError("file_too_large", { path, sizeBytes: size, maxBytes: SANDBOX_LIMITS.readMaxBytes });
    }
    const all = new Uint8Array(size);
    let at = 0;
    for (const piece of pieces) {
      all.set(piece, at);
      at += piece.byteLength;
    }
    return all;
  }

  async readText(path: string, { startLine, endLine, lossy }: ReadTextOptions = {}): Promise<string> {
    // A gateway of the previous release has no `lossy`, and always reads that way.
    const response = await this.#get("text", { path, startLine, endLine, lossy: lossy === true ? true : undefined });
    return decodeFileText(path, new Uint8Array(await response.arrayBuffer()));
  }

  async *download(path: string, { offset = 0, length }: Range = {}): AsyncGenerator<Uint8Array> {
    checkRange("offset", offset);
    if (length !== undefined) checkRange("length", length);
    if (length === 0) return void (await this.stat(path));
    let at = offset;
    let etag: string | null = null;
    let begun = false;
    for (let broken = 0; ; broken += 1) {
      try {
        const response = await this.#content(path, at, length === undefined ? null : offset + length, etag);
        // The offset is the end of the file.
        if (response === null) return;
        etag = response.headers.get("etag");
        begun = true;
        for await (const piece of bodyOf(response)) {
          at += piece.byteLength;
          broken = 0;
          yield piece;
        }
        return;
      } catch (error) {
        if (!begun || !isBreak(error)) throw error;
        if (broken >= RESUMES_MAX)
          throw error instanceof ConnectionBroken ? unreachable(this.#remote.transport.url, error.cause) : error;
      }
      await pause(around(RESUME_MS * 2 ** broken));
    }
  }

  async write(path: string, content: string | Uint8Array, options: WriteOptions = {}): Promise<void> {
    const repeatable = options.ifVersion === undefined;
    await this.#put(path, { body: toBytes(content), repeatable }, options);
  }

  async upload(path: string, content: AsyncIterable<Uint8Array>, options: WriteOptions = {}): Promise<void> {
    await this.#put(path, { body: await streamBody(content) }, options);
  }

  async append(path: string, content: string | Uint8Array): Promise<void> {
    this.#remote.check();
    const call = { method: "POST", path: this.#path("append"), query: { path }, body: toBytes(content) } as const;
    await this.#remote.transport.done(call);
  }

  async mkdir(path: string): Promise<void> {
    await this.#post("mkdir", { path }, true);
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#post("rename", { from, to }, false);
  }

  async remove(path: string, options: { readonly recursive?: boolean } = {}): Promise<void> {
    this.#remote.check();
    const query = { path, recursive: options.recursive ?? false };
    await this.#remote.transport.done({ method: "DELETE", path: this.#path("content"), query });
  }

  async stat(path: string): Promise<FileStat> {
    return this.#ask(fileStatSchema, "stat", { path });
  }

  async list(
    path: string,
    options: { readonly depth?: number; readonly maxResults?: number } = {},
  ): Promise<FileListing> {
    return this.#ask(fileListingSchema, "list", { path, ...options });
  }

  async glob(path: string, pattern: string, options: GlobOptions = {}): Promise<GlobResult> {
    return this.#search(globReplySchema, "glob", { path, pattern, ...options });
  }

  async grep(path: string, pattern: string, options: GrepOptions = {}): Promise<GrepResult> {
    return this.#search(grepReplySchema, "grep", { path, pattern, ...options });
  }

  /** A broken watch cannot know what it missed, so it ends with an error; the caller must re-list. */
  async *watch(path: string, { recursive = true, signal }: WatchOptions = {}): AsyncGenerator<FileChange> {
    this.#remote.check();
    const call = { method: "GET", path: this.#path("watch"), query: { path, recursive }, signal } as const;
    try {
      const { url } = this.#remote.transport;
      for await (const { event, data } of serverEvents(await this.#remote.transport.stream(call), url)) {
        if (event === "error") throw errorOfEvent(data, url);
        yield readResponse(fileChangeSchema, data, url);
      }
    } catch (error) {
      signal?.throwIfAborted();
      throw error instanceof ConnectionBroken ? unreachable(this.#remote.transport.url, error.cause) : error;
    }
  }

  /** `null` when the range begins where the file ends. */
  async #content(path: string, from: number, to: number | null, etag: string | null): Promise<Response | null> {
    const whole = from === 0 && to === null;
    const headers: Record<string, string> = whole ? {} : { range: `bytes=${from}-${to === null ? "" : to - 1}` };
    if (etag !== null) headers["if-match"] = etag;
    try {
      return await this.#get("content", { path }, headers);
    } catch (error) {
      if (error instanceof SandlotError && error.code === "range_not_satisfiable") return null;
      throw error;
    }
  }

  #get(what: string, query: Query, headers: Record<string, string> = {}): Promise<Response> {
    this.#remote.check();
    return this.#remote.transport.send({ method: "GET", path: this.#path(what), query, headers, repeatable: true });
  }

  async #ask<T>(schema: z.ZodType<T>, what: string, query: Query): Promise<T> {
    this.#remote.check();
    return this.#remote.transport.json(schema, { method: "GET", path: this.#path(what), query, repeatable: true });
  }

  async #search<T>(schema: z.ZodType<T>, what: string, json: object): Promise<T> {
    this.#remote.check();
    return this.#remote.transport.json(schema, { method: "POST", path: this.#path(what), json, repeatable: true });
  }

  async #post(what: string, json: object, repeatable: boolean): Promise<void> {
    this.#remote.check();
    await this.#remote.transport.done({ method: "POST", path: this.#path(what), json, repeatable });
  }

  async #put(path: string, sent: Pick<Call, "body" | "repeatable">, { mode, ifVersion }: WriteOptions): Promise<void> {
    this.#remote.check();
    checkFileMode(mode);
    const headers: Record<string, string> = {};
    if (ifVersion === null) headers["if-none-match"] = "*";
    else if (ifVersion !== undefined) headers["if-match"] = `"${encodeURIComponent(ifVersion)}"`;
    const query = { path, mode: mode?.toString(8).padStart(3, "0") };
    await this.#remote.transport.done({ method: "PUT", path: this.#path("content"), query, headers, ...sent });
  }

  #path(what: string): string {
    return pathOf(this.#remote, `files/${what}`);
  }
}

function checkRange(field: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 0) return;
  throw new SandlotError("invalid_request", { field, problem: "it is not a number of bytes" });
}

/** The body in chunks. One that ends before its announced length is broken. */
async function* bodyOf(response: Response): AsyncGenerator<Uint8Array> {
  if (response.body === null) return;
  const announced = Number(response.headers.get("content-length") ?? Number.NaN);
  const reader = response.body.getReader();
  let size = 0;
  try {
    while (true) {
      const { done, value } = await reader.read().catch((error: unknown) => {
        throw new ConnectionBroken("the download broke", { cause: error });
      });
      if (done) break;
      size += value.byteLength;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
  if (size < announced) throw new ConnectionBroken("the download ended early");
}
