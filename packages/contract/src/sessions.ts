/** Persistent shells of a sandbox. */

import type { OutputOptions } from "./output-so-far.ts";
import type { OutputSoFar } from "./results/exec.ts";
import type { SessionExecResult, SessionInfo } from "./results/sessions.ts";

/**
 * Persistent shells: working directory, variables and functions stay from one command to the next. Commands of one
 * session run one after the other; two sessions share nothing but the files.
 */
export interface SandboxSessions {
  /** Opens a session, or finds the one with this id. */
  open(options?: SessionOptions): Promise<SessionInfo>;
  exec(sessionId: string, command: string, options?: SessionExecOptions): Promise<SessionExecResult>;
  /**
   * The output of its command until now, without waiting for more; when none runs, the output of the last one, until
   * the next begins. `exec_not_found` before the first command, or when the output is no longer held.
   */
  output(sessionId: string, options?: OutputOptions): Promise<OutputSoFar>;
  list(): Promise<readonly SessionInfo[]>;
  /** Ends the shell and its processes. A missing session is fine. */
  close(sessionId: string): Promise<void>;
}

export interface SessionOptions {
  readonly sessionId?: string;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface SessionExecOptions {
  readonly stdin?: string | Uint8Array;
  readonly timeoutMs?: number;
  /** As in `ExecOptions`. Read the rest with `output`. */
  readonly outputMaxBytes?: number;
  readonly signal?: AbortSignal;
}
