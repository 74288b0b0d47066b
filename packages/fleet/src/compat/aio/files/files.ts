/** The files of a sandbox with an AIO server. */

import {
  checkFileMode,
  decodeFileText,
  type FileChange,
  type FileListing,
  type FileStat,
  type GlobOptions,
  type GlobResult,
  type GrepOptions,
  type GrepResult,
  isSandlotError,
  lineRangeOf,
  type ReadTextOptions,
  type SandboxFiles,
  SandlotError,
  type WriteOptions,
} from "@sandlot/contract";
import { noStream } from "../../../backend/unsupported.ts";
import type { AioCalls } from "../calls.ts";
import { checkCount, checkPath, invalid } from "../checks.ts";
import { Downloads, type Range } from "./downloads.ts";
import * as texts from "./script-texts.ts";
import type { Scripts } from "./scripts.ts";
import { Search } from "./search.ts";
import { bytesOf, once, type Staging } from "./staging.ts";
import { parseStat } from "./stats.ts";

/** Fits into one variable after encoding. */
const SMALL_BYTES = 64 * 1024;

export class AioFiles implements SandboxFiles {
  readonly #calls: AioCalls;
  readonly #scripts: Scripts;
  readonly #staging: Staging;
  readonly #downloads: Downloads;
  readonly #search: Search;

  constructor(calls: AioCalls, scripts: Scripts, staging: Staging) {
    this.#calls = calls;
    this.#scripts = scripts;
    this.#staging = staging;
    this.#downloads = new Downloads(calls, scripts);
    this.#search = new Search(calls, scripts);
  }

  async read(path: string, range: Range = {}): Promise<Uint8Array> {
    return this.#downloads.read(checkPath(path), range);
  }

  async readText(path: string, options?: ReadTextOptions): Promise<string> {
    const lines = lineRangeOf(options);
    const [first, last] = [lines?.startLine ?? 1, lines?.endLine];
    checkCount(first, "startLine", 1);
    checkCount(last, "endLine", 1);
    if (last !== undefined && last < first) throw invalid("endLine", "it is before startLine");
    const bytes = await this.read(path);
    return decodeFileText(path, lines === null ? bytes : linesOf(bytes, first, last), options);
  }

  download(path: string, range: Range = {}): AsyncIterable<Uint8Array> {
    return this.#downloads.stream(path, range);
  }

  async write(path: string, content: string | Uint8Array, options: WriteOptions = {}): Promise<void> {
    const bytes = bytesOf(content);
    if (bytes.length > SMALL_BYTES) return this.upload(path, once(bytes), options);
    await this.#place(texts.WRITE_SMALL, path, { ...placing(options), DATA: encoded(bytes) }, options);
  }

  async upload(path: string, content: AsyncIterable<Uint8Array>, options: WriteOptions = {}): Promise<void> {
    const variables = placing(options);
    await this.#staged(path, content, (id) => this.#place(texts.WRITE_STAGED, path, variables, options, id));
  }

  async append(path: string, content: string | Uint8Array): Promise<void> {
    const bytes = bytesOf(content);
    if (bytes.length <= SMALL_BYTES) await this.#place(texts.APPEND_SMALL, path, { DATA: encoded(bytes) }, {});
    else await this.#staged(path, once(bytes), (id) => this.#place(texts.APPEND_STAGED, path, {}, {}, id));
  }

  async mkdir(path: string): Promise<void> {
    await this.#run(texts.MAKE_DIRECTORY, path);
  }

  async rename(from: string, to: string): Promise<void> {
    const target = checkPath(to);
    await this.#run(texts.RENAME, from, { TO: target });
  }

  async remove(path: string, options: { readonly recursive?: boolean } = {}): Promise<void> {
    await this.#run(texts.REMOVE, path, { RECURSIVE: options.recursive === true ? "1" : "" });
  }

  async stat(path: string): Promise<FileStat> {
    const tidy = checkPath(path);
    return parseStat(tidy, await this.#run(texts.STAT, tidy));
  }

  async list(
    path: string,
    options: { readonly depth?: number; readonly maxResults?: number } = {},
  ): Promise<FileListing> {
    return this.#search.list(checkPath(path), options);
  }

  async glob(path: string, pattern: string, options: GlobOptions = {}): Promise<GlobResult> {
    return this.#search.glob(checkPath(path), pattern, options);
  }

  async grep(path: string, pattern: string, options: GrepOptions = {}): Promise<GrepResult> {
    return this.#search.grep(checkPath(path), pattern, options);
  }

  watch(): AsyncIterable<FileChange> {
    return noStream("aio", "watch", "watching files");
  }

  async #run(text: string, path: string, variables: Readonly<Record<string, string>> = {}): Promise<string> {
    const tidy = checkPath(path);
    return this.#scripts.run(text, { P: tidy, ...variables }, tidy);
  }

  async #place(
    text: string,
    path: string,
    variables: Readonly<Record<string, string>>,
    { ifVersion }: WriteOptions,
    id: string = this.#calls.world.randomHex(8),
  ): Promise<void> {
    try {
      await this.#run(text, path, { ...variables, ID: id });
    } catch (error) {
      if (!isSandlotError(error, "file_changed")) throw error;
      throw new SandlotError("file_changed", { ...error.details, expected: ifVersion ?? null }, { cause: error });
    }
  }

  /** Beside its target, where there is room and a rename suffices. A failure leaves nothing behind. */
  async #staged(path: string, content: AsyncIterable<Uint8Array>, place: (id: string) => Promise<void>): Promise<void> {
    const id = this.#calls.world.randomHex(8);
    const staged = await this.#run(texts.PREPARE, path, { ID: id });
    try {
      await this.#staging.fill(staged, content);
      await place(id);
    } catch (error) {
      await this.#run(texts.DISCARD, staged).catch(() => {});
      throw error;
    }
  }
}

function placing({ mode, ifVersion }: WriteOptions): Readonly<Record<string, string>> {
  checkFileMode(mode);
  return {
    MODE: mode === undefined ? "" : mode.toString(8),
    WANT: ifVersion ?? "",
    ABSENT: ifVersion === null ? "1" : "",
  };
}

function encoded(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("base64");
}

/** Lines without the newline of the last one, still as bytes: only the requested part has to be text. */
function linesOf(bytes: Uint8Array, first: number, last: number | undefined): Uint8Array {
  const lines = Buffer.from(bytes).toString("latin1").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return Buffer.from(lines.slice(first - 1, last).join("\n"), "latin1");
}
