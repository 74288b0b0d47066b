/**
 * The narrow view of a sandbox: what tool code gets. Commands and files; no destroy, no policy.
 *
 * The same interface is implemented by the library, by the client of a gateway and by every backend, and one suite
 * of tests (`sandlot/testing`) says what it means.
 *
 * Invariants
 * - Paths are absolute and are the sandbox's own. `/mnt/user-data/{workspace,uploads,outputs}` always exist.
 * - A failing command is a result, not an exception. Exceptions are `SandlotError`s.
 * - A result says when something was left out (`truncated`, dropped byte counts). Nothing is cut silently.
 * - An object of an older generation answers `stale_generation`; a dead sandbox answers `sandbox_lost`.
 */

import type { Generation, SandboxId } from "./ids.ts";

export interface Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  /** Runs a command and waits for it. A string goes through a shell, an array is run as it is. */
  exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult>;
  readonly files: SandboxFiles;
}

export interface ExecOptions {
  /** Chosen by the caller: the same id with the same command is run once, and both callers get its result. */
  readonly execId?: string;
  /** Default `/mnt/user-data/workspace`. */
  readonly cwd?: string;
  /** Added to the sandbox's environment. Names must be POSIX names. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array;
  /** Ends the whole process tree when it runs out; the result's status is then `timed_out`. 0 means no limit. */
  readonly timeoutMs?: number;
  /** Aborting ends the process tree and rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

export type ExecStatus = "completed" | "timed_out" | "killed" | "lost";

export interface ExecResult {
  readonly execId: string;
  readonly status: ExecStatus;
  /** `null` when the command did not exit by itself. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Bytes that were produced but are no longer held, because output is kept in a bounded ring. */
  readonly stdoutDroppedBytes: number;
  readonly stderrDroppedBytes: number;
  readonly durationMs: number;
}

export interface SandboxFiles {
  /** The bytes of a file, or of a range of it. */
  read(path: string, range?: { readonly offset?: number; readonly length?: number }): Promise<Uint8Array>;
  /** The text of a file, or of lines `startLine` to `endLine`, both counted from 1 and included. */
  readText(path: string, lines?: { readonly startLine?: number; readonly endLine?: number }): Promise<string>;
  /** Writes atomically, making parent directories. An existing file keeps its mode unless `mode` is given. */
  write(path: string, content: string | Uint8Array, options?: { readonly mode?: number }): Promise<void>;
  /** Appends natively, making the file and its parent directories when they are missing. */
  append(path: string, content: string | Uint8Array): Promise<void>;
  /** Makes a directory and its parents. An existing directory is fine. */
  mkdir(path: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  /** Removes a file or an empty directory; with `recursive` a whole tree. A missing path is `file_not_found`. */
  remove(path: string, options?: { readonly recursive?: boolean }): Promise<void>;
  stat(path: string): Promise<FileStat>;
  /** Entries below a directory, sorted by path, down to `depth` levels (default 1). */
  list(path: string, options?: { readonly depth?: number; readonly maxResults?: number }): Promise<FileListing>;
  /** Paths below `path` that match a glob pattern; `**` crosses directories. */
  glob(path: string, pattern: string, options?: GlobOptions): Promise<GlobResult>;
  /** Lines that match. Regular expression unless `literal`; ignores case unless `caseSensitive`. */
  grep(path: string, pattern: string, options?: GrepOptions): Promise<GrepResult>;
}

export interface FileStat {
  readonly path: string;
  readonly kind: "file" | "directory" | "symlink" | "other";
  readonly sizeBytes: number;
  readonly mode: number;
  readonly modifiedAt: number;
}

export interface FileListing {
  readonly entries: readonly FileStat[];
  readonly truncated: boolean;
}

export interface GlobOptions {
  readonly includeDirectories?: boolean;
  readonly maxResults?: number;
}

export interface GlobResult {
  readonly paths: readonly string[];
  readonly truncated: boolean;
}

export interface GrepOptions {
  readonly glob?: string;
  readonly literal?: boolean;
  readonly caseSensitive?: boolean;
  readonly maxResults?: number;
}

export interface GrepMatch {
  readonly path: string;
  /** Counted from 1. */
  readonly lineNumber: number;
  readonly line: string;
}

export interface GrepResult {
  readonly matches: readonly GrepMatch[];
  readonly truncated: boolean;
}

/** Limits that every backend shares. Each trades completeness for a bounded answer. */
export const SANDBOX_LIMITS = {
  /** Bytes kept per output stream of a command; older ones are dropped and counted. */
  execOutputMaxBytes: 10 * 1024 * 1024,
  /** A command without `timeoutMs` ends after this long. */
  execTimeoutMs: 600_000,
  /** How long a process tree has between TERM and KILL. */
  killGraceMs: 2_000,
  readMaxBytes: 100 * 1024 * 1024,
  listMaxResults: 10_000,
  globMaxResults: 200,
  grepMaxResults: 100,
  /** Larger files are not searched: they are hardly text that somebody wants to read. */
  grepFileMaxBytes: 1_000_000,
  /** Longer lines are not matched: they are where regular expressions explode. */
  grepLineMaxChars: 2_000,
  /** A reported line is cut to this length, and then ends with `...`. */
  grepReportMaxChars: 200,
} as const;

/** Where every sandbox keeps the thread's directories. */
export const WORKSPACE_ROOT = "/mnt/user-data";
export const WORKSPACE_DIRECTORIES = ["workspace", "uploads", "outputs"] as const;
export const DEFAULT_CWD = `${WORKSPACE_ROOT}/workspace`;
/** What the name of an environment variable may look like. */
export const ENV_NAME_PATTERN = /^[A-Za-z_][A-Za-z0-9_]*$/;
