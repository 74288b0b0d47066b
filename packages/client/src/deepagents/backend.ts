/**
 * A fleet as deepagents' `SandboxBackendProtocolV2`. Every method calls the sandbox directly; none is a shell script.
 *
 * Invariants
 * - A failure with one file or command is a result with `error`. A wrong setup throws.
 * - Directories that deepagents creates at the root (`/large_tool_results`, `/conversation_history`), where a sandbox
 *   is not writable, are in the workspace; the agent sees their paths as deepagents wrote them.
 * - A search from the root covers the thread's own files, not the operating system's.
 */

import { DEFAULT_CWD, type FileStat, isoTime, isSandlotError, type Sandbox, WORKSPACE_ROOT } from "@sandlot/contract";
import type {
  DeleteResult,
  EditResult,
  ExecuteResponse,
  FileDownloadResponse,
  FileInfo,
  FileUploadResponse,
  GlobResult,
  GrepResult,
  LsResult,
  ReadRawResult,
  ReadResult,
  SandboxBackendProtocolV2,
  WriteResult,
} from "deepagents";
import { missingOutput } from "../tools/missing-output.ts";
import { noticeInWords } from "../tools/notice.ts";
import { absolutePath, isWithin } from "../tools/paths.ts";
import { imageTypeOf } from "../tools/read-tool.ts";
import type { SandboxSource } from "../tools/source.ts";
import { countLines, textOf } from "../tools/text.ts";
import { BackendRuns, type BackendRunsOptions } from "./runs.ts";

const INVENTED = ["/large_tool_results", "/conversation_history"];
const INVENTED_HOME = `${DEFAULT_CWD}/.deepagents`;
const READ_LINES = 500;
/** The default limit of a search. */
const RESULTS_MAX = 1_000;

export class SandlotBackend implements SandboxBackendProtocolV2, AsyncDisposable {
  readonly id = "sandlot";
  /** Pass it to the agent: it reports the end of a run, so that the lease is released at once. */
  readonly middleware: ReturnType<BackendRuns["middleware"]>;
  readonly #runs: BackendRuns;

  constructor(source: SandboxSource, options: BackendRunsOptions = {}) {
    this.#runs = new BackendRuns(source, options);
    this.middleware = this.#runs.middleware();
  }

  /** Output and errors in the order of writing. */
  async execute(command: string): Promise<ExecuteResponse> {
    const run = this.#runs.current();
    try {
      const result = await run.use((sandbox) => sandbox.exec(`{ ${command}\n} 2>&1`, { signal: run.ending }));
      const { status, exitCode, stdout, stderr, durationMs } = result;
      const missing = missingOutput(result).stdout;
      const cut = missing > 0 ? `[the first ${missing} bytes were dropped]\n` : "";
      const end = status === "completed" ? "" : `\n[${status} after ${(durationMs / 1000).toFixed(1)} s]`;
      const output = noticeInWords(run.takeNotice()) + cut + stdout + stderr + end;
      return { output, exitCode, truncated: missing > 0 };
    } catch (error) {
      return { output: `Error: ${problemOf(error)}`, exitCode: null, truncated: false };
    }
  }

  ls(path: string): Promise<LsResult> {
    return this.#answer(async ({ files }) => ({ files: (await files.list(inside(path))).entries.map(infoOf) }));
  }

  read(filePath: string, offset = 0, limit = READ_LINES): Promise<ReadResult> {
    return this.#answer(async ({ files }) => {
      const bytes = await files.read(inside(filePath));
      const text = textOf(bytes);
      if (text === null) return { content: bytes, mimeType: mimeTypeOf(bytes) };
      const totalLines = countLines(text);
      if (offset > 0 && offset >= totalLines)
        return { error: `Line offset ${offset} exceeds file length (${totalLines} lines)` };
      const content = text
        .split("\n")
        .slice(offset, Math.min(offset + limit, totalLines))
        .join("\n");
      const endLine = Math.min(offset + limit, totalLines);
      const more = endLine < totalLines ? { nextOffset: endLine } : {};
      return { content, mimeType: "text/plain", totalLines, startLine: offset + 1, endLine, ...more };
    });
  }

  readRaw(filePath: string): Promise<ReadRawResult> {
    return this.#answer(async ({ files }) => {
      const [bytes, { modifiedAt }] = await Promise.all([files.read(inside(filePath)), files.stat(inside(filePath))]);
      const at = isoTime(modifiedAt);
      const text = textOf(bytes);
      const mimeType = text === null ? mimeTypeOf(bytes) : "text/plain";
      return { data: { content: text ?? bytes, mimeType, created_at: at, modified_at: at } };
    });
  }

  write(filePath: string, content: string): Promise<WriteResult> {
    return this.#change(filePath, async ({ files }) => {
      await files.write(inside(filePath), content);
      return { path: filePath, filesUpdate: null };
    });
  }

  edit(filePath: string, oldString: string, newString: string, replaceAll = false): Promise<EditResult> {
    return this.#change(filePath, async ({ files }) => {
      const path = inside(filePath);
      const { version } = await files.stat(path);
      const text = textOf(await files.read(path));
      if (text === null) return { error: `${filePath} is not a text file` };
      if (oldString === "") return { error: "The text to replace is empty" };
      const occurrences = text.split(oldString).length - 1;
      if (occurrences === 0) return { error: `String not found in file: '${oldString}'` };
      if (occurrences > 1 && !replaceAll)
        return {
          error: `String occurs ${occurrences} times in ${filePath}. Use replace_all, or include more of its surroundings`,
        };
      await files.write(path, text.split(oldString).join(newString), { ifVersion: version });
      return { path: filePath, filesUpdate: null, occurrences };
    });
  }

  grep(pattern: string, path?: string | null, glob?: string | null, maxCount?: number | null): Promise<GrepResult> {
    return this.#answer(async ({ files }) => {
      const options = { literal: true, caseSensitive: true, maxResults: maxCount ?? RESULTS_MAX };
      const filter = glob == null ? {} : { glob: glob.includes("/") ? glob : `**/${glob}` };
      const result = await files.grep(from(path), pattern, { ...options, ...filter });
      const matches = result.matches.map((m) => ({ path: outside(m.path), line: m.lineNumber, text: m.line }));
      return { matches, truncated: result.truncated || result.skippedFiles > 0 || result.skippedLines > 0 };
    });
  }

  glob(pattern: string, path?: string): Promise<GlobResult> {
    return this.#answer(async ({ files }) => {
      const { paths, truncated } = await files.glob(from(path), pattern.replace(/^\//, ""), {
        maxResults: RESULTS_MAX,
      });
      return { files: paths.map((found) => ({ path: outside(found), is_dir: false })), truncated };
    });
  }

  delete(filePath: string): Promise<DeleteResult> {
    return this.#change(filePath, async ({ files }) => {
      await files.remove(inside(filePath), { recursive: true });
      return { path: filePath, filesUpdate: null };
    });
  }

  uploadFiles(uploads: Array<[string, Uint8Array]>): Promise<FileUploadResponse[]> {
    const run = this.#runs.current();
    const one = async (path: string, content: Uint8Array): Promise<FileUploadResponse> => {
      try {
        await run.use(({ files }) => files.write(inside(path), content));
        return { path, error: null };
      } catch (error) {
        return { path, error: fileErrorOf(error) };
      }
    };
    return Promise.all(uploads.map(([path, content]) => one(path, content)));
  }

  downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    const run = this.#runs.current();
    const one = async (path: string): Promise<FileDownloadResponse> => {
      try {
        return {
          path,
          content: await run.use(({ files }) => files.read(inside(path)), { repeatable: true }),
          error: null,
        };
      } catch (error) {
        return { path, content: null, error: fileErrorOf(error) };
      }
    };
    return Promise.all(paths.map(one));
  }

  /** Ends every run and releases their leases. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#runs.endAll();
  }

  #answer<T>(action: (sandbox: Sandbox) => Promise<T>): Promise<T | { error: string }> {
    const run = this.#runs.current();
    return this.#try(() => run.use(action, { repeatable: true }));
  }

  /** Models edit one file with several concurrent calls; each call sees the result of the one before. */
  #change<T>(path: string, action: (sandbox: Sandbox) => Promise<T>): Promise<T | { error: string }> {
    const run = this.#runs.current();
    return this.#try(() => run.turns.run(inside(path), () => run.use(action)));
  }

  async #try<T>(action: () => Promise<T>): Promise<T | { error: string }> {
    try {
      return await action();
    } catch (error) {
      return { error: problemOf(error) };
    }
  }
}

/** The sandbox's path for one of the agent. */
function inside(path: string): string {
  const absolute = absolutePath(path);
  return INVENTED.some((root) => isWithin(absolute, root)) ? INVENTED_HOME + absolute : absolute;
}

/** The agent's path for one of the sandbox. */
function outside(path: string): string {
  return isWithin(path, INVENTED_HOME) && path !== INVENTED_HOME ? path.slice(INVENTED_HOME.length) : path;
}

function from(path: string | null | undefined): string {
  return path == null || path === "/" || path === "" ? WORKSPACE_ROOT : inside(path);
}

function infoOf({ path, kind, sizeBytes, modifiedAt }: FileStat): FileInfo {
  const isDirectory = kind === "directory";
  const modified = isoTime(modifiedAt);
  return {
    path: outside(path) + (isDirectory ? "/" : ""),
    is_dir: isDirectory,
    size: sizeBytes,
    modified_at: modified,
  };
}

function mimeTypeOf(bytes: Uint8Array): string {
  return imageTypeOf(bytes) ?? "application/octet-stream";
}

/** One line for a model. An error of the setup is thrown to the developer. */
function problemOf(error: unknown): string {
  if (isSandlotError(error) && error.code !== "invalid_request" && error.code !== "lease_released")
    return error.message;
  throw error;
}

function fileErrorOf(error: unknown): NonNullable<FileUploadResponse["error"]> {
  if (isSandlotError(error, "file_not_found")) return "file_not_found";
  if (isSandlotError(error, "is_a_directory")) return "is_directory";
  if (isSandlotError(error, "permission_denied") || isSandlotError(error, "read_only_path")) return "permission_denied";
  if (isSandlotError(error, "invalid_path") || isSandlotError(error, "not_a_directory")) return "invalid_path";
  throw error;
}
