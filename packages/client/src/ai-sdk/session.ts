/**
 * A thread's sandbox as the AI SDK's sandbox session (version 7).
 *
 * Invariants
 * - Relative paths and commands begin in `/mnt/user-data/workspace`, for the session's whole life.
 * - A missing file is `null` or `false`; every other failure rejects with a `SandlotError`.
 * - The session is one run: one lease, taken at the first use, released when it is disposed or its signal fires.
 */

import {
  DEFAULT_CWD,
  decodeFileText,
  isSandlotError,
  SANDBOX_LIMITS,
  type Sandbox,
  SandlotError,
} from "@sandlot/contract";
import type { Experimental_SandboxSession } from "ai";
import { exitCodeOf } from "../tools/exit-code.ts";
import { SANDBOX_INSTRUCTIONS } from "../tools/instructions.ts";
import { behindLinks } from "../tools/links.ts";
import { missingOutput } from "../tools/missing-output.ts";
import { noticeInWords } from "../tools/notice.ts";
import { absolutePath } from "../tools/paths.ts";
import { type RunOptions, SandboxRun } from "../tools/run.ts";
import type { SandboxSource } from "../tools/source.ts";
import { unlessAborted } from "../tools/waiting.ts";
import { spawnProcess } from "./process.ts";

export type SandlotSession = Experimental_SandboxSession & AsyncDisposable & { end(): Promise<void> };

interface PathOptions {
  readonly path: string;
  readonly abortSignal?: AbortSignal;
}

export function sandlotSession(source: SandboxSource, options: RunOptions): SandlotSession {
  const run = new SandboxRun(source, { purpose: "ai-sdk", ...options });
  const files = new SessionFiles(run);
  const spawn: unknown = (options: Parameters<typeof spawnProcess>[1]) => spawnProcess(run, options);
  return {
    description: SANDBOX_INSTRUCTIONS,
    readFile: (options: PathOptions) => files.readFile(options),
    readBinaryFile: (options: PathOptions) => files.readBinaryFile(options),
    readTextFile: (options: PathOptions & TextRange) => files.readTextFile(options),
    writeFile: (options: PathOptions & { content: ReadableStream<Uint8Array> }) => files.writeFile(options),
    writeBinaryFile: (options: PathOptions & { content: Uint8Array }) => files.writeWhole(options, options.content),
    writeTextFile: async (options: PathOptions & { content: string; encoding?: string }) =>
      files.writeWhole(options, encode(options.content, options.encoding)),
    stat: (options: PathOptions) => files.stat(options),
    listDirectory: (options: PathOptions) => files.listDirectory(options),
    deleteFile: (options: PathOptions) => files.deleteFile(options),
    // Overloaded: with `stdin: true` the process has a `stdin`, which `spawnProcess` provides.
    spawn: spawn as SandlotSession["spawn"],
    run: (options: RunCommandOptions) => runCommand(run, options),
    end: () => run.end(),
    [Symbol.asyncDispose]: () => run.end(),
  };
}

interface RunCommandOptions {
  readonly command: string;
  readonly workingDirectory?: string;
  readonly env?: Record<string, string>;
  readonly abortSignal?: AbortSignal;
}

async function runCommand(run: SandboxRun, { command, workingDirectory, env, abortSignal }: RunCommandOptions) {
  const result = await run.use(
    (sandbox) =>
      sandbox.exec(command, {
        cwd: absolutePath(workingDirectory ?? DEFAULT_CWD),
        ...(env === undefined ? {} : { env }),
        ...(abortSignal === undefined ? {} : { signal: abortSignal }),
        outputMaxBytes: SANDBOX_LIMITS.execOutputMaxBytes,
      }),
    { signal: abortSignal },
  );
  // The one place where a tool that uses the session shows the model text.
  const missing = missingOutput(result).stdout;
  const cut = missing > 0 ? `[the first ${missing} bytes of stdout were dropped]\n` : "";
  const stderr = noticeInWords(run.takeNotice()) + cut + result.stderr;
  return { exitCode: exitCodeOf(result), stdout: result.stdout, stderr };
}

interface TextRange {
  readonly encoding?: string;
  readonly startLine?: number;
  readonly endLine?: number;
}

class SessionFiles {
  readonly #run: SandboxRun;

  constructor(run: SandboxRun) {
    this.#run = run;
  }

  async readFile({ path, abortSignal }: PathOptions): Promise<ReadableStream<Uint8Array> | null> {
    const found = await this.stat({ path, ...(abortSignal ? { abortSignal } : {}) });
    if (found === null) return null;
    if (found.type === "directory") throw new SandlotError("is_a_directory", { path: absolutePath(path) });
    const bytes = this.#run.stream(({ files }) => files.download(absolutePath(path)), abortSignal);
    return ReadableStream.from(bytes);
  }

  readBinaryFile({ path, abortSignal }: PathOptions): Promise<Uint8Array | null> {
    return this.#orNull(({ files }) => files.read(absolutePath(path)), abortSignal);
  }

  async readTextFile({ path, abortSignal, encoding, startLine, endLine }: PathOptions & TextRange) {
    const bytes = await this.readBinaryFile({ path, ...(abortSignal ? { abortSignal } : {}) });
    if (bytes === null) return null;
    const text =
      encoding === undefined ? decodeFileText(absolutePath(path), bytes) : new TextDecoder(encoding).decode(bytes);
    if (startLine === undefined && endLine === undefined) return text;
    return text
      .split("\n")
      .slice((startLine ?? 1) - 1, endLine)
      .join("\n");
  }

  async writeFile({
    path,
    content,
    abortSignal,
  }: PathOptions & { content: ReadableStream<Uint8Array> }): Promise<void> {
    const at = absolutePath(path);
    await this.#run.turns.run(at, () =>
      this.#run.use(({ files }) => files.upload(at, untilAborted(content, abortSignal)), { signal: abortSignal }),
    );
  }

  async writeWhole({ path, abortSignal }: PathOptions, content: Uint8Array): Promise<void> {
    const at = absolutePath(path);
    await unlessAborted(
      this.#run.turns.run(at, () => this.#run.use(({ files }) => files.write(at, content), { signal: abortSignal })),
      abortSignal,
    );
  }

  /** Links are followed. */
  stat({ path, abortSignal }: PathOptions) {
    return this.#orNull(async (sandbox) => {
      const { kind, sizeBytes } = await sandbox.files.stat(await behindLinks(sandbox, absolutePath(path)));
      const type = typeOf(kind);
      return { type: type === "symlink" ? ("other" as const) : type, size: sizeBytes };
    }, abortSignal);
  }

  listDirectory({ path, abortSignal }: PathOptions) {
    return this.#orNull(async ({ files }) => {
      const { entries, truncated } = await files.list(absolutePath(path));
      if (truncated)
        throw new SandlotError("invalid_request", {
          field: "path",
          problem: `there are more than ${entries.length} entries in it`,
        });
      return entries.map((entry) => ({
        name: entry.path.slice(entry.path.lastIndexOf("/") + 1),
        type: typeOf(entry.kind),
      }));
    }, abortSignal);
  }

  async deleteFile({ path, abortSignal }: PathOptions): Promise<boolean> {
    const absolute = absolutePath(path);
    const deleted = await this.#orNull(async ({ files }) => {
      if ((await files.stat(absolute)).kind === "directory")
        throw new SandlotError("is_a_directory", { path: absolute });
      await files.remove(absolute);
      return true;
    }, abortSignal);
    return deleted ?? false;
  }

  async #orNull<T>(action: (sandbox: Sandbox) => Promise<T>, signal: AbortSignal | undefined): Promise<T | null> {
    try {
      return await unlessAborted(this.#run.use(action, { signal, repeatable: true }), signal);
    } catch (error) {
      if (isSandlotError(error, "file_not_found")) return null;
      throw error;
    }
  }
}

/** The content, until it is aborted: an incomplete upload leaves nothing behind. */
async function* untilAborted(content: ReadableStream<Uint8Array>, signal: AbortSignal | undefined) {
  const reader = content.getReader();
  try {
    for (;;) {
      const { done, value } = await unlessAborted(reader.read(), signal);
      if (done) return;
      yield value;
    }
  } catch (error) {
    await reader.cancel(error);
    throw error;
  } finally {
    reader.releaseLock();
  }
}

function encode(text: string, encoding = "utf-8"): Uint8Array {
  if (/^utf-?8$/i.test(encoding)) return new TextEncoder().encode(text);
  const units = Array.from({ length: text.length }, (_, index) => text.charCodeAt(index));
  if (/^(?:utf-?16(?:-?le)?|ucs-?2)$/i.test(encoding))
    return Uint8Array.from(units.flatMap((unit) => [unit & 0xff, unit >> 8]));
  const isAscii = /^(?:us-)?ascii$/i.test(encoding);
  const isLatin = /^(?:latin-?1|iso-8859-1)$/i.test(encoding);
  if ((isAscii || isLatin) && units.every((unit) => unit <= (isAscii ? 0x7f : 0xff))) return Uint8Array.from(units);
  const problem =
    isAscii || isLatin
      ? `the text has characters that ${encoding} has not`
      : `texts are written as utf-8, utf-16le, latin1 or ascii, not as ${encoding}`;
  throw new SandlotError("invalid_request", { field: "encoding", problem });
}

/** A kind that this version does not know is another one. */
function typeOf(kind: string): "file" | "directory" | "symlink" | "other" {
  return kind === "file" || kind === "directory" || kind === "symlink" ? kind : "other";
}
