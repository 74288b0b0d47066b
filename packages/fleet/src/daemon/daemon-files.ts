/**
 * The files of a sandbox, through its daemon. `SandboxFiles`, and streams for what does not fit in memory.
 */

import {
  type FileListing,
  type FileStat,
  type GlobOptions,
  type GlobResult,
  type GrepOptions,
  type GrepResult,
  SANDBOX_LIMITS,
  type SandboxFiles,
  SandlotError,
} from "@sandlot/contract";
import type { z } from "zod";
import { fileListingSchema, fileStatSchema, globResultSchema, grepResultSchema, nothingSchema } from "./replies.ts";
import type { Wire } from "./wire.ts";

/** Runs a request; what breaks becomes an error of the contract. */
export type Attempt = <T>(work: (wire: Wire) => Promise<T>) => Promise<T>;

export class DaemonFiles implements SandboxFiles {
  readonly #attempt: Attempt;

  constructor(attempt: Attempt) {
    this.#attempt = attempt;
  }

  async read(path: string, range: { readonly offset?: number; readonly length?: number } = {}): Promise<Uint8Array> {
    const bytes = await this.#read({ path, offset: range.offset, length: range.length });
    return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  async readText(path: string, lines?: { readonly startLine?: number; readonly endLine?: number }): Promise<string> {
    // Asking for lines at all means lines, even from the first to the last.
    const range = lines === undefined ? {} : { startLine: lines.startLine ?? 1, endLine: lines.endLine };
    return (await this.#read({ path, ...range })).toString("utf8");
  }

  write(path: string, content: string | Uint8Array, options: { readonly mode?: number } = {}): Promise<void> {
    return this.#send("PUT", "write", { path, mode: options.mode }, encode(content));
  }

  append(path: string, content: string | Uint8Array): Promise<void> {
    return this.#send("POST", "append", { path }, encode(content));
  }

  /** Writes what comes, atomically, however much it is. */
  upload(path: string, content: AsyncIterable<Uint8Array>, options: { readonly mode?: number } = {}): Promise<void> {
    return this.#send("PUT", "write", { path, mode: options.mode }, content);
  }

  /** All of a file, however large. A file that cannot be sent whole ends with an error, never early. */
  async *download(path: string): AsyncGenerator<Uint8Array> {
    const query = { path: checked(path) };
    const response = await this.#attempt((wire) =>
      wire.open({ method: "GET", path: "/sandlot/files/download", query }),
    );
    try {
      for await (const chunk of response) yield chunk as Uint8Array;
    } catch (error) {
      throw await this.#attempt(() => Promise.reject(error)).catch((known: unknown) => known);
    } finally {
      response.destroy();
    }
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
    return this.#post(globResultSchema, "glob", { path: checked(path), pattern, ...options });
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
    return this.#attempt((wire) => wire.bytes(call, SANDBOX_LIMITS.readMaxBytes));
  }

  async #send(
    method: "PUT" | "POST",
    name: string,
    query: { path: string; mode?: number | undefined },
    body: Uint8Array | AsyncIterable<Uint8Array>,
  ): Promise<void> {
    const call = { method, path: `/sandlot/files/${name}`, query: { ...query, path: checked(query.path) }, body };
    await this.#attempt((wire) => wire.ask(nothingSchema, call));
  }

  async #post<T>(schema: z.ZodType<T>, name: string, fields: object): Promise<T> {
    return this.#attempt((wire) => wire.post(schema, `/sandlot/files/${name}`, fields));
  }
}

/** Text that is not well-formed cannot travel; the daemon checks everything else. */
function checked(path: string): string {
  if (typeof path === "string" && path.isWellFormed()) return path;
  throw new SandlotError("invalid_path", { path: String(path), problem: "it is not well-formed text" });
}

function encode(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? Buffer.from(content, "utf8") : content;
}
