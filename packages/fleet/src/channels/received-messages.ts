/**
 * Puts the files of a message into the thread's uploads, through the sandbox, so that it works with every backend.
 *
 * Invariants
 * - One temporary lease per message, always released. A message without files takes none.
 * - Nothing is overwritten: a name taken by a file, or by a planted link, is skipped.
 * - At most `maxBytes` of a file are read, whatever its announced size; a file that is too large leaves nothing behind.
 * - A stalled download, or one whose message is aborted, is ended: no lease waits for a sender.
 * - Placeholders are replaced in the order of the files, each by one path or one failure.
 */

import { SandboxRun, type SandboxSource } from "@sandlot/client/tools";
import { isSandlotError, type SandboxFiles, SandlotError } from "@sandlot/contract";
import type { World } from "../world/world.ts";
import type { AnnouncedFile, OpenedFile, ReceivedFile } from "./channel.ts";

const UPLOADS = "/mnt/user-data/uploads";

export interface ReceivingOptions {
  readonly source: SandboxSource;
  readonly user: string;
  readonly thread: string;
  readonly maxBytes: number;
  readonly maxFiles: number;
  readonly signal: AbortSignal;
  readonly world: Pick<World, "timer">;
}

/** No platform pauses this long within a file that it still sends. */
const STANDSTILL_MS = 60_000;
/** How many numbers are tried for a name. */
const NUMBERS_MAX = 1_000;
/** A file is fetched again when its name was taken at the last moment, or its download broke. */
const ATTEMPTS_MAX = 3;

export async function receiveFiles(
  files: readonly AnnouncedFile[],
  options: ReceivingOptions,
): Promise<ReceivedFile[]> {
  if (files.length === 0) return [];
  const { source, user, thread, signal } = options;
  await using run = new SandboxRun(source, { user, thread, purpose: "upload", signal });
  const received: ReceivedFile[] = [];
  for (const [index, file] of files.entries()) {
    const problem = index < options.maxFiles ? null : `a message may have at most ${options.maxFiles} files`;
    received.push(problem === null ? await receive(run, file, options) : failure(file, problem));
  }
  return received;
}

/**
 * Marks a file's place in a message's text: Unicode's character for it. Typed text such as `[file]` is never mistaken
 * for one; this character itself is removed from messages (`withoutPlaceholders`).
 */
export const FILE_PLACEHOLDER = "\uFFFC";

export function withoutPlaceholders(text: string): string {
  return text.replaceAll(FILE_PLACEHOLDER, "");
}

/** The text with each placeholder replaced, in order, by the result for its file. */
export function fillPlaceholders(text: string, files: readonly ReceivedFile[]): string {
  let next = 0;
  const filled = text.replaceAll(FILE_PLACEHOLDER, () => {
    const file = files[next];
    next += 1;
    return file === undefined ? "" : inWords(file);
  });
  const rest = files.slice(next).map(inWords);
  return [filled, ...rest].filter((part) => part !== "").join("\n");
}

function inWords({ kind, path, problem }: ReceivedFile): string {
  return path ?? `Failed to obtain the [${kind}]${problem === null ? "" : `: ${problem}`}`;
}

async function receive(run: SandboxRun, file: AnnouncedFile, options: ReceivingOptions): Promise<ReceivedFile> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await fetchOnce(run, file, options);
    } catch (error) {
      options.signal.throwIfAborted();
      const isFinal = isSandlotError(error, "payload_too_large") || attempt === ATTEMPTS_MAX;
      if (isFinal) return failure(file, problemOf(error));
    }
  }
}

async function fetchOnce(
  run: SandboxRun,
  file: AnnouncedFile,
  { maxBytes, signal, world }: ReceivingOptions,
): Promise<ReceivedFile> {
  const opened = await file.open(signal);
  const discard = () => opened.discard();
  signal.addEventListener("abort", discard, { once: true });
  try {
    signal.throwIfAborted();
    checkSize(opened.sizeBytes ?? 0, maxBytes);
    const name = safeName(file.name ?? opened.name ?? "", file.fallbackName);
    const path = await run.use(({ files }) => freePath(files, name), { signal, repeatable: true });
    const counted = new CountedContent(opened, maxBytes, world);
    await run.use(({ files }) => files.upload(path, counted, { ifVersion: null }), { signal });
    return { kind: file.kind, path, sizeBytes: counted.sizeBytes, problem: null };
  } finally {
    signal.removeEventListener("abort", discard);
    discard();
  }
}

/** A free path, without even a dangling link. */
async function freePath(files: SandboxFiles, name: string): Promise<string> {
  if ((await files.stat(UPLOADS)).kind !== "directory") throw new SandlotError("not_a_directory", { path: UPLOADS });
  for (let number = 0; number < NUMBERS_MAX; number++) {
    const path = `${UPLOADS}/${numberedName(name, number)}`;
    try {
      await files.stat(path);
    } catch (error) {
      if (isSandlotError(error, "file_not_found")) return path;
      throw error;
    }
  }
  throw new SandlotError("file_exists", { path: `${UPLOADS}/${name}` });
}

class CountedContent implements AsyncIterable<Uint8Array> {
  readonly #opened: OpenedFile;
  readonly #maxBytes: number;
  readonly #world: Pick<World, "timer">;
  sizeBytes = 0;

  constructor(opened: OpenedFile, maxBytes: number, world: Pick<World, "timer">) {
    this.#opened = opened;
    this.#maxBytes = maxBytes;
    this.#world = world;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for await (const piece of this.#moving()) {
      this.sizeBytes += piece.length;
      checkSize(this.sizeBytes, this.#maxBytes);
      yield piece;
    }
    const announced = this.#opened.sizeBytes;
    if (announced !== null && announced !== this.sizeBytes)
      throw new Error(`the download ended after ${this.sizeBytes} of ${announced} bytes`);
  }

  /** The content, until it stalls. Time in which the reader asks for nothing does not count. */
  async *#moving(): AsyncGenerator<Uint8Array> {
    const watched = () => this.#world.timer(STANDSTILL_MS, () => this.#opened.discard());
    let timer = watched();
    try {
      for await (const piece of this.#opened.content) {
        timer.cancel();
        yield piece;
        timer = watched();
      }
    } finally {
      timer.cancel();
    }
  }
}

function checkSize(sizeBytes: number, maxBytes: number): void {
  if (sizeBytes > maxBytes) throw new SandlotError("payload_too_large", { what: "The file", maxBytes });
}

function failure({ kind }: AnnouncedFile, problem: string): ReceivedFile {
  return { kind, path: null, sizeBytes: null, problem };
}

/** For the sender and for the model: the problem, without technical details. */
function problemOf(error: unknown): string {
  if (isSandlotError(error, "payload_too_large")) return `it is larger than ${error.details.maxBytes} bytes`;
  if (isSandlotError(error, "disk_limit_exceeded")) return "there is no room left";
  if (isSandlotError(error)) return "the sandbox could not take it";
  return "it could not be downloaded";
}

/** Most file systems end at 255 bytes; a number may have to be added. */
const NAME_MAX_BYTES = 200;
const EXTENSION_MAX_CHARS = 16;

function safeName(name: string, fallback: string): string {
  const segment = name.normalize("NFC").split(/[/\\]/).at(-1) ?? "";
  const plain = segment
    // Control, format and separator characters: invisible in a terminal, or a new line in a prompt.
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, "")
    .replace(/[<>:"|?*`$]/g, "_")
    .trim()
    .replace(/^\.+/, "_")
    .replace(/[. ]+$/, "");
  if (plain === "" || /^_+$/.test(plain)) return fallback;
  const { stem, extension } = splitName(plain);
  return cutToBytes(stem, NAME_MAX_BYTES - byteLength(extension)) + extension;
}

/** `report.pdf`, `report_1.pdf`, `report_2.pdf`, … */
function numberedName(name: string, number: number): string {
  if (number === 0) return name;
  const { stem, extension } = splitName(name);
  return `${stem}_${number}${extension}`;
}

function splitName(name: string): { stem: string; extension: string } {
  const at = name.lastIndexOf(".");
  if (at <= 0 || name.length - at > EXTENSION_MAX_CHARS) return { stem: name, extension: "" };
  return { stem: name.slice(0, at), extension: name.slice(at) };
}

function cutToBytes(text: string, maxBytes: number): string {
  let cut = "";
  let bytes = 0;
  for (const character of text) {
    bytes += byteLength(character);
    if (bytes > maxBytes) break;
    cut += character;
  }
  return cut;
}

function byteLength(text: string): number {
  return Buffer.byteLength(text);
}
