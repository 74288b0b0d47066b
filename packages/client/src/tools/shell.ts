/**
 * The shell of one run. Working directory, variables and functions stay from one command to the next, and two runs in
 * the same sandbox share nothing but the files.
 *
 * Where the backend has persistent sessions, it is one of them. Where it has not, each command is a process of its own
 * and only the working directory is kept: a trap reports it when the command's shell ends.
 *
 * Invariants
 * - A session belongs to one generation and one environment. When either changes, the next command opens another one
 *   where the old one stood, and `fresh` tells that variables are gone.
 * - Values of variables reach the sandbox as environment only, never inside a command.
 */

import { DEFAULT_CWD, type ExecResult, isSandlotError, type Sandbox } from "@sandlot/contract";
import type { SandboxRun } from "./run.ts";

export interface ShellOptions {
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
  readonly environment: Readonly<Record<string, string>>;
}

export interface ShellResult extends ExecResult {
  readonly cwd: string;
  /** Variables and functions of earlier commands were not there any more. */
  readonly fresh: boolean;
  /** The command ended the shell it ran in; the next one gets a new one. */
  readonly shellEnded: boolean;
}

interface Session {
  readonly id: string;
  readonly generation: number;
  readonly environment: string;
}

export class RunShell {
  readonly #run: SandboxRun;
  /** Opening a session again by its name finds it, so that a repeated opening leaves none behind. */
  readonly #name = `run-${crypto.randomUUID().replaceAll("-", "").slice(0, 16)}`;
  #environmentsSeen = 0;
  #session: Session | null = null;
  #cwd: string;
  #started = false;
  #turn: Promise<unknown> = Promise.resolve();

  /** `cwd` is where it begins. */
  constructor(run: SandboxRun, cwd: string = DEFAULT_CWD) {
    this.#run = run;
    this.#cwd = cwd;
    run.beforeRelease(async (sandbox) => {
      const session = this.#session;
      this.#session = null;
      if (session !== null && session.generation === sandbox.generation) await sandbox.sessions.close(session.id);
    });
  }

  get cwd(): string {
    return this.#cwd;
  }

  /** Commands of one shell run one after the other. */
  exec(command: string, options: ShellOptions): Promise<ShellResult> {
    const mine = this.#turn.then(() => {
      options.signal?.throwIfAborted();
      return this.#run.use((sandbox) => this.#execIn(sandbox, command, options), { signal: options.signal });
    });
    this.#turn = mine.catch(() => undefined);
    return mine;
  }

  async #execIn(sandbox: Sandbox, command: string, options: ShellOptions): Promise<ShellResult> {
    const session = await this.#sessionIn(sandbox, options.environment);
    if (session === null) return this.#execAlone(sandbox, command, options);
    const { timeoutMs, signal } = options;
    const limits = { ...(timeoutMs === undefined ? {} : { timeoutMs }), ...(signal ? { signal } : {}) };
    try {
      const result = await sandbox.sessions.exec(session.id, command, limits);
      const fresh = session.opened && this.#started;
      this.#started = true;
      // Of a shell that was lost nobody knows where it was.
      if (result.status !== "lost") this.#cwd = result.cwd;
      return { ...result, fresh, cwd: this.#cwd };
    } catch (error) {
      if (!isSandlotError(error, "session_not_found")) throw error;
      // It was not there, so nothing ran. The next one is opened, so this cannot go on for ever.
      this.#session = null;
      if (session.opened) throw error;
      return this.#execIn(sandbox, command, options);
    }
  }

  /** The session for this generation and environment; `null` where the backend has no sessions. */
  async #sessionIn(sandbox: Sandbox, variables: Readonly<Record<string, string>>) {
    const environment = JSON.stringify(Object.entries(variables).sort());
    const { generation } = sandbox;
    const old = this.#session;
    if (old?.generation === generation && old.environment === environment) return { ...old, opened: false };
    try {
      if (old !== null && old.environment !== environment) this.#environmentsSeen += 1;
      const name = `${this.#name}-${this.#environmentsSeen}`;
      const { sessionId } = await openSession(sandbox, name, this.#cwd, variables);
      this.#session = { id: sessionId, generation, environment };
      if (old?.generation === generation && old.id !== sessionId) await sandbox.sessions.close(old.id);
      return { ...this.#session, opened: true };
    } catch (error) {
      if (isSandlotError(error, "capability_missing")) return null;
      throw error;
    }
  }

  async #execAlone(sandbox: Sandbox, command: string, options: ShellOptions): Promise<ShellResult> {
    const { timeoutMs, signal, environment } = options;
    const marker = `sandlot-cwd-${crypto.randomUUID()}`;
    const traced = `trap 'printf "\\n%s:%s\\n" ${marker} "$PWD"' EXIT\n${command}`;
    const run = (cwd: string) =>
      sandbox.exec(traced, {
        cwd,
        env: environment,
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
        ...(signal ? { signal } : {}),
      });
    const result = await run(this.#cwd).catch((error: unknown) => {
      // The directory was removed meanwhile, so nothing ran.
      if (this.#cwd === DEFAULT_CWD || !isMissingDirectory(error)) throw error;
      return run(DEFAULT_CWD);
    });
    const { stdout, cwd } = withoutMarker(result.stdout, marker);
    if (cwd !== null) this.#cwd = cwd;
    return { ...result, stdout, cwd: this.#cwd, fresh: false, shellEnded: false };
  }
}

async function openSession(sandbox: Sandbox, sessionId: string, cwd: string, env: Readonly<Record<string, string>>) {
  try {
    return await sandbox.sessions.open({ sessionId, cwd, env });
  } catch (error) {
    if (cwd === DEFAULT_CWD || !isMissingDirectory(error)) throw error;
    return sandbox.sessions.open({ sessionId, cwd: DEFAULT_CWD, env });
  }
}

function isMissingDirectory(error: unknown): boolean {
  return isSandlotError(error, "file_not_found") || isSandlotError(error, "not_a_directory");
}

/** Output of background processes may follow the marker; it stays. */
function withoutMarker(stdout: string, marker: string): { stdout: string; cwd: string | null } {
  const at = stdout.lastIndexOf(`\n${marker}:`);
  if (at < 0) return { stdout, cwd: null };
  const start = at + marker.length + 2;
  const end = stdout.indexOf("\n", start);
  const cwd = stdout.slice(start, end < 0 ? undefined : end);
  return { stdout: stdout.slice(0, at) + (end < 0 ? "" : stdout.slice(end + 1)), cwd: cwd === "" ? null : cwd };
}
