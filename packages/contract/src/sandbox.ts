/**
 * The narrow view of a sandbox for tool code: commands, files, shells, ports; no destroy, no policy.
 *
 * The library, the client of a gateway and every backend implement this interface, and one suite of tests
 * (`sandlot/testing`) defines its meaning.
 *
 * Invariants
 * - Paths are the sandbox's own; a relative one is below the workspace, where commands start.
 *   `/mnt/user-data/{workspace,uploads,outputs}` always exist.
 * - A failing command is a result, not an exception. Exceptions are `SandlotError`s.
 * - A result says when something was left out (`truncated`, dropped byte counts). Nothing is cut silently.
 * - An object of an older generation answers `stale_generation`; a dead sandbox answers `sandbox_lost`.
 * - Not every backend has sessions, terminals, ports and watching. A missing one is `capability_missing`.
 * - A stream (`AsyncIterable`) begins when it is iterated, holds resources only until it ends, and ends early when its
 *   reader stops or its signal fires.
 */

import type { ReadTextOptions } from "./file-text.ts";
import type { Generation, SandboxId } from "./ids.ts";
import type { OutputOptions } from "./output-so-far.ts";
import type {
  ExecInfo,
  ExecOutputMode,
  ExecResult,
  FollowEnd,
  OutputSoFar,
  SpawnedExec,
  StreamName,
  WaitForOutputReply,
} from "./results/exec.ts";
import type { FileChange, FileListing, FileStat, GlobResult, GrepResult } from "./results/files.ts";
import type { ListeningPort, ProcessInfo, ResourceUsage } from "./results/processes.ts";
import type { TerminalInfo } from "./results/terminals.ts";
import type { SandboxSessions } from "./sessions.ts";

export interface Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  /** Runs a command and waits for it. A string goes through a shell, an array runs directly. */
  exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult>;
  /** Starts a command and returns at once. `execs` follows, feeds and ends it by its id. */
  spawn(command: string | readonly string[], options?: SpawnOptions): Promise<SpawnedExec>;
  readonly execs: SandboxExecs;
  readonly files: SandboxFiles;
  readonly sessions: SandboxSessions;
  readonly terminals: SandboxTerminals;
  readonly ports: SandboxPorts;
  /** Running processes of commands, sessions and terminals, without the sandbox's own. */
  processes(): Promise<readonly ProcessInfo[]>;
  /** The usage of the whole sandbox. `processCount` also counts its threads and its own processes. */
  usage(): Promise<ResourceUsage>;
}

export interface ExecOptions {
  /** Chosen by the caller: the same id with the same command runs once, and both callers get its result. */
  readonly execId?: string;
  /** Default `/mnt/user-data/workspace`. */
  readonly cwd?: string;
  /** Added to the sandbox's environment. Names must be POSIX names. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array;
  /** Ends the whole process tree at this limit, with status `timed_out`. 0 means no limit. */
  readonly timeoutMs?: number;
  /** Aborting ends the process tree and rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** How much of each stream's end the result holds. Default `execResultMaxBytes`, at most `execOutputMaxBytes`. */
  readonly outputMaxBytes?: number;
  /**
   * Gets live output as whole characters. The command waits for the returned promise (`output: "hold"`). A listener
   * that throws ends the command, and `exec` rejects with its error.
   */
  readonly onStdout?: (text: string) => unknown;
  readonly onStderr?: (text: string) => unknown;
}

/** A spawned command has no time limit by default. */
export interface SpawnOptions extends Omit<ExecOptions, "outputMaxBytes" | "onStdout" | "onStderr"> {
  /** Keeps stdin open after the bytes of `stdin`, for `execs.writeStdin`. */
  readonly keepStdinOpen?: boolean;
  /**
   * `ring` (default): the command never waits for its readers, and output beyond `execOutputMaxBytes` is dropped and
   * counted. `hold`: the command waits for its slowest follower. Without a follower it waits `outputHoldMs`, then
   * output is dropped and counted. A time limit, `kill` and the end of the sandbox do not wait.
   */
  readonly output?: ExecOutputMode;
}

/** Commands by their id: running ones, and ended ones that are still remembered. */
export interface SandboxExecs {
  list(): Promise<readonly ExecInfo[]>;
  /** Output from the given offsets on, then the end. Survives broken connections without repeating or losing a byte. */
  follow(execId: string, options?: FollowOptions): AsyncIterable<FollowEvent>;
  /** The output until now, without waiting for more. */
  output(execId: string, options?: OutputOptions): Promise<OutputSoFar>;
  /** Sends a signal to the command's own process group. `false`: no running command has that id. */
  signal(execId: string, signal: ExecSignal): Promise<boolean>;
  /** Ends the whole process tree: TERM, a grace, KILL. `false`: no command has that id. */
  kill(execId: string): Promise<boolean>;
  /** Only for a command spawned with `keepStdinOpen`. `end` closes stdin after these bytes. */
  writeStdin(execId: string, content: string | Uint8Array, options?: { readonly end?: boolean }): Promise<void>;
  /** Waits until a line of output matches. `wait_timeout` after `timeoutMs`. */
  waitForOutput(execId: string, pattern: string, options: WaitForOutputOptions): Promise<WaitForOutputReply>;
}

export const EXEC_SIGNALS = [
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGTERM",
  "SIGKILL",
  "SIGUSR1",
  "SIGUSR2",
  "SIGSTOP",
  "SIGCONT",
  "SIGWINCH",
] as const;
export type ExecSignal = (typeof EXEC_SIGNALS)[number];

export interface FollowOptions {
  /** The start offsets; default the beginning. */
  readonly from?: { readonly stdout?: number; readonly stderr?: number };
  /** `exit` (default): until the command itself has ended. `closed`: until no process it started can write any more. */
  readonly until?: "exit" | "closed";
  /** `false`: only observes; a command with `output: "hold"` does not wait for this follower. Default `true`. */
  readonly hold?: boolean;
  readonly signal?: AbortSignal;
}

/** For each stream, the pieces of output and the gaps cover every byte once, in order. */
export type FollowEvent =
  | {
      readonly type: "output";
      readonly stream: StreamName;
      readonly offset: number;
      readonly bytes: Uint8Array;
    }
  /** The bytes from `fromOffset` to `toOffset` are no longer held. */
  | {
      readonly type: "gap";
      readonly stream: StreamName;
      readonly fromOffset: number;
      readonly toOffset: number;
    }
  | { readonly type: "end"; readonly end: FollowEnd };

export interface WaitOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface WaitForOutputOptions extends WaitOptions {
  /** Treats the pattern as text instead of a regular expression. */
  readonly literal?: boolean;
}

/** Terminals for people and for programs that need one. They outlive a connection and can be attached to again. */
export interface SandboxTerminals {
  open(options: TerminalOptions): Promise<Terminal>;
  /** Attaches to an open terminal; output continues from `fromOffset`, default the held output. */
  attach(terminalId: string, options?: { readonly fromOffset?: number }): Promise<Terminal>;
  list(): Promise<readonly TerminalInfo[]>;
  /** Hangs up. A missing terminal is fine. */
  close(terminalId: string): Promise<void>;
}

export interface TerminalOptions {
  readonly terminalId?: string;
  /** Default: an interactive shell. */
  readonly command?: readonly string[];
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly columns: number;
  readonly rows: number;
}

/** One connection to a terminal. */
export interface Terminal {
  readonly terminalId: string;
  write(content: string | Uint8Array): void;
  resize(columns: number, rows: number): void;
  /** The terminal's live output. A reader that does not read blocks the terminal's programs. */
  readonly output: AsyncIterable<TerminalOutput>;
  /** Resolves when its program has ended; `null` when the connection ended first. */
  readonly ended: Promise<{ readonly exitCode: number | null; readonly signal: string | null } | null>;
  /** Ends this connection. The terminal and its programs go on. */
  detach(): Promise<void>;
}

export interface TerminalOutput {
  readonly offset: number;
  /** Bytes before `offset` that are no longer held. */
  readonly droppedBytes: number;
  readonly bytes: Uint8Array;
}

export interface SandboxPorts {
  list(): Promise<readonly ListeningPort[]>;
  /** Waits until the port accepts connections. `wait_timeout` after `timeoutMs`. */
  waitFor(port: number, options: WaitOptions): Promise<void>;
}

export interface SandboxFiles {
  /** The bytes of a file, or of a range. */
  read(path: string, range?: { readonly offset?: number; readonly length?: number }): Promise<Uint8Array>;
  /** The text of a file, or of some lines. If these are not UTF-8, the error is `file_not_text`, unless `lossy`. */
  readText(path: string, options?: ReadTextOptions): Promise<string>;
  /** All of a file or of a range, of any size. An incomplete download ends with an error, never early. */
  download(path: string, range?: { readonly offset?: number; readonly length?: number }): AsyncIterable<Uint8Array>;
  /** Writes atomically, making parent directories. An existing file keeps its mode unless `mode` is given. */
  write(path: string, content: string | Uint8Array, options?: WriteOptions): Promise<void>;
  /** Writes the stream atomically, of any size. */
  upload(path: string, content: AsyncIterable<Uint8Array>, options?: WriteOptions): Promise<void>;
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
  /** Matching lines. A regex that ripgrep and Python share, unless `literal`; ignores case unless `caseSensitive`. */
  grep(path: string, pattern: string, options?: GrepOptions): Promise<GrepResult>;
  /** Changes below a directory, or of a file, from the first event (`ready`) on. */
  watch(path: string, options?: WatchOptions): AsyncIterable<FileChange>;
}

export interface WriteOptions {
  /** Permissions and the sticky bit. Setuid or setgid is `invalid_request`; a replaced file loses them. */
  readonly mode?: number;
  /** Replaces only this version (`FileStat.version`), or with `null` only creates. Otherwise `file_changed`. */
  readonly ifVersion?: string | null;
}

export interface WatchOptions {
  /** Default `true`. */
  readonly recursive?: boolean;
  readonly signal?: AbortSignal;
}

export interface GlobOptions {
  readonly includeDirectories?: boolean;
  readonly maxResults?: number;
}

export interface GrepOptions {
  readonly glob?: string;
  readonly literal?: boolean;
  readonly caseSensitive?: boolean;
  readonly maxResults?: number;
}

/** The parent of the thread's directories in every sandbox. */
export const WORKSPACE_ROOT = "/mnt/user-data";
export const WORKSPACE_DIRECTORIES = ["workspace", "uploads", "outputs"] as const;
export const DEFAULT_CWD = `${WORKSPACE_ROOT}/workspace`;
/** The pattern of an environment variable's name. */
export const ENV_NAME_PATTERN = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * The options of a command that travel unchanged, listed once: the client and the fleet send them with these functions,
 * the gateway forwards them, the daemon takes no others. The rest differs per hop: stdin is bytes, signals stay local.
 */
const SHARED = ["execId", "cwd", "env", "timeoutMs"] as const satisfies readonly (keyof ExecOptions &
  keyof SpawnOptions)[];
const EXEC_ONLY = ["outputMaxBytes"] as const satisfies readonly (keyof ExecOptions)[];
const SPAWN_ONLY = ["keepStdinOpen", "output"] as const satisfies readonly (keyof SpawnOptions)[];

export type ExecOptionName = (typeof SHARED)[number] | (typeof EXEC_ONLY)[number];
export type SpawnOptionName = (typeof SHARED)[number] | (typeof SPAWN_ONLY)[number];

/** The options of `exec` and `spawn` together. */
export const COMMAND_OPTION_NAMES: readonly (ExecOptionName | SpawnOptionName)[] = [
  ...SHARED,
  ...EXEC_ONLY,
  ...SPAWN_ONLY,
];

/** Anything that has some of these options, absent or `undefined`. */
type Given<Name extends string, Options> = { readonly [One in Name & keyof Options]?: Options[One] | undefined };

/** Picks the given options of `exec` from options or from a request. */
export function pickExecOptions(given: Given<ExecOptionName, ExecOptions>): Pick<ExecOptions, ExecOptionName> {
  return pick(given, [...SHARED, ...EXEC_ONLY]);
}

/** Picks the given options of `spawn`. */
export function pickSpawnOptions(given: Given<SpawnOptionName, SpawnOptions>): Pick<SpawnOptions, SpawnOptionName> {
  return pick(given, [...SHARED, ...SPAWN_ONLY]);
}

function pick<Options extends object>(given: object, names: readonly (keyof Options & string)[]): Options {
  const picked: Record<string, unknown> = {};
  for (const name of names) {
    const value = (given as Readonly<Record<string, unknown>>)[name];
    if (value !== undefined) picked[name] = value;
  }
  return picked as Options;
}
