/**
 * The shell of one run. Working directory, variables and functions stay from one command to the next, and two runs in
 * the same sandbox share only the files.
 *
 * It is a persistent session where the backend supports them. Otherwise each command is a separate process and only the
 * working directory is kept: a trap reports it when the command's shell ends.
 *
 * Invariants
 * - A session belongs to one generation and one environment. When either changes, the next command opens another one in
 *   the old one's directory, and `fresh` reports that variables are gone.
 * - While a command runs, its output goes to `live`, if given: read from the session, or passed on by the command.
 * - Values of variables reach the sandbox only as environment, never inside a command.
 */

import { DEFAULT_CWD, type ExecResult, isSandlotError, type OutputPart, type Sandbox } from "@sandlot/contract";
import type { LiveOutput } from "./live-output.ts";
import { missingOutput } from "./missing-output.ts";
import type { SandboxRun } from "./run.ts";

/** How much of each stream one request asks for, and how many requests one read makes. */
const LIVE_PART_BYTES = 256 * 1024;
const LIVE_PARTS_MAX = 64;

export interface ShellOptions {
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
  readonly environment: Readonly<Record<string, string>>;
  /** Receives the command's live output. */
  readonly live?: LiveOutput | undefined;
}

export interface ShellResult extends ExecResult {
  readonly cwd: string;
  /** Variables and functions of earlier commands are gone. */
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
  /** Opening a session again by its name finds it, so that a repeated open leaves none behind. */
  readonly #name = `run-${crypto.randomUUID().replaceAll("-", "").slice(0, 16)}`;
  #environmentsSeen = 0;
  #session: Session | null = null;
  #cwd: string;
  #started = false;
  #turn: Promise<unknown> = Promise.resolve();

  /** `cwd` is the first directory. */
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
    const { timeoutMs, signal, live } = options;
    const reader = live === undefined ? null : new SessionReader(sandbox, session.id, live);
    if (reader !== null) live?.readWith(() => reader.read("running"));
    const limits = { ...(timeoutMs === undefined ? {} : { timeoutMs }), ...(signal ? { signal } : {}) };
    try {
      const result = await sandbox.sessions.exec(session.id, command, limits);
      if (reader !== null) await reader.finish(result);
      const fresh = session.opened && this.#started;
      this.#started = true;
      // The directory of a lost shell is unknown.
      if (result.status !== "lost") this.#cwd = result.cwd;
      return { ...result, fresh, cwd: this.#cwd };
    } catch (error) {
      if (!isSandlotError(error, "session_not_found")) throw error;
      // It did not exist, so nothing ran. The next one is newly opened, so this cannot loop.
      this.#session = null;
      if (session.opened) throw error;
      return this.#execIn(sandbox, command, options);
    } finally {
      await live?.end(false);
    }
  }

  /** The session for this generation and environment; `null` where sessions are unsupported. */
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
    const { timeoutMs, signal, environment, live } = options;
    const marker = `sandlot-cwd-${crypto.randomUUID()}`;
    const traced = `trap 'printf "\\n%s:%s\\n" ${marker} "$PWD"' EXIT\n${command}`;
    const shown = new BeforeMarker(`\n${marker}:`);
    const listeners = {
      onStdout: (text: string) => live?.add("stdout", shown.push(text)),
      onStderr: (text: string) => live?.add("stderr", text),
    };
    const run = (cwd: string) =>
      sandbox.exec(traced, {
        ...(live === undefined ? {} : listeners),
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
    await live?.end(true);
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

/** Reads the output of a session's command, and passes on each byte once. */
class SessionReader {
  readonly #sandbox: Sandbox;
  readonly #sessionId: string;
  readonly #live: LiveOutput;
  /** The command that was found running. The previous one does not matter here. */
  #execId: string | null = null;
  #next = { stdout: 0, stderr: 0 };

  constructor(sandbox: Sandbox, sessionId: string, live: LiveOutput) {
    this.#sandbox = sandbox;
    this.#sessionId = sessionId;
    this.#live = live;
  }

  /** Reads what is available: of a running command, or of the one with this id. */
  async read(which: "running" | { readonly execId: string }): Promise<void> {
    for (let parts = 0; parts < LIVE_PARTS_MAX; parts++) {
      const options = { from: this.#next, maxBytes: LIVE_PART_BYTES };
      const output = await this.#sandbox.sessions.output(this.#sessionId, options);
      if (which === "running" ? output.status !== "running" : output.execId !== which.execId) return;
      if (this.#execId !== null && this.#execId !== output.execId) return;
      this.#execId = output.execId;
      for (const stream of ["stdout", "stderr"] as const) {
        const { text, offset, nextOffset } = output[stream];
        if (offset > this.#next[stream]) this.#live.miss(stream, offset - this.#next[stream]);
        this.#next = { ...this.#next, [stream]: nextOffset };
        this.#live.add(stream, text);
      }
      if (output.stdout.text === "" && output.stderr.text === "") return;
      if (isRead(output.stdout) && isRead(output.stderr)) return;
    }
  }

  /** A listener gets the rest. Where nothing was read yet, the result has all of it. */
  async finish(result: ExecResult): Promise<void> {
    if (!this.#live.hasListener) return;
    const missing = missingOutput(result);
    if (this.#execId !== null || missing.stdout + missing.stderr > 0) {
      await this.#live.end(false);
      // The result is more important than its listener; output dropped meanwhile is in it, or counted there.
      await this.read({ execId: result.execId }).catch((error: unknown) => {
        if (!isSandlotError(error)) throw error;
      });
    } else for (const stream of ["stdout", "stderr"] as const) this.#live.add(stream, result[stream]);
    await this.#live.end(true);
  }
}

function isRead({ nextOffset, totalBytes }: OutputPart): boolean {
  return nextOffset >= totalBytes;
}

/** The part of a stream before a marker, in pieces. A possible beginning of the marker is held back. */
class BeforeMarker {
  readonly #marker: string;
  #held = "";
  #found = false;

  constructor(marker: string) {
    this.#marker = marker;
  }

  push(piece: string): string {
    if (this.#found) return "";
    const text = this.#held + piece;
    const at = text.indexOf(this.#marker);
    this.#found = at >= 0;
    if (this.#found) return text.slice(0, at);
    let from = Math.max(0, text.length - this.#marker.length + 1);
    while (from < text.length && !this.#marker.startsWith(text.slice(from))) from++;
    this.#held = text.slice(from);
    return text.slice(0, from);
  }
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
