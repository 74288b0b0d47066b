/**
 * A thread's sandbox, over HTTP: the same interface as the library's. Every call is a separate request, under a lease
 * that the gateway takes for its duration; the client's own lease keeps the sandbox between them.
 *
 * The client gives a command an id when its caller gave none. So a request whose response was lost can be sent again:
 * the gateway finds the command by its id and does not run it twice.
 */

import {
  type ExecOptions,
  type ExecResult,
  execResultSchema,
  type Generation,
  type ListeningPort,
  type OutputOptions,
  type OutputSoFar,
  type ProcessInfo,
  pickExecOptions,
  pickSpawnOptions,
  portListSchema,
  processListSchema,
  type ResourceUsage,
  type Sandbox,
  type SandboxExecs,
  type SandboxFiles,
  type SandboxId,
  type SandboxPorts,
  type SandboxSessions,
  type SandboxTerminals,
  type SessionExecOptions,
  type SessionExecResult,
  type SessionInfo,
  type SessionOptions,
  type SpawnedExec,
  type SpawnOptions,
  sessionExecResultSchema,
  sessionInfoSchema,
  sessionListSchema,
  usageSchema,
  type WaitOptions,
  withWorkspacePaths,
} from "@sandlot/contract";
import { isLive, liveExec } from "@sandlot/contract/live-exec";
import { SHOWN } from "../shown.ts";
import { stdinFields } from "../wire/bytes.ts";
import { randomId } from "../wire/clock.ts";
import { backgroundExecReply } from "../wire/plain-replies.ts";
import { RemoteExecs, readOutput } from "./remote-execs.ts";
import { RemoteFiles } from "./remote-files.ts";
import { RemoteTerminals } from "./remote-terminals.ts";
import { pathOf, type RemoteThread, segment } from "./thread-path.ts";

export class RemoteSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  readonly execs: SandboxExecs;
  readonly files: SandboxFiles;
  readonly sessions: SandboxSessions;
  readonly terminals: SandboxTerminals;
  readonly ports: SandboxPorts;
  readonly #remote: RemoteThread;
  readonly #execs: RemoteExecs;

  constructor(id: SandboxId, generation: Generation, remote: RemoteThread) {
    this.id = id;
    this.generation = generation;
    this.#remote = remote;
    this.#execs = new RemoteExecs(remote);
    this.execs = this.#execs;
    this.files = withWorkspacePaths(new RemoteFiles(remote));
    this.sessions = new RemoteSessions(remote);
    this.terminals = new RemoteTerminals(remote);
    this.ports = new RemotePorts(remote);
  }

  /** What `console.log` shows: what it is, without connection details. */
  [SHOWN](): string {
    return `Sandbox { id: '${this.id}', generation: ${this.generation} }`;
  }

  async exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    if (isLive(options)) return liveExec(this, command, options);
    this.#remote.check();
    const { signal, stdin } = options;
    const execId = options.execId ?? randomId();
    const json = { ...commandFields(command), ...pickExecOptions(options), ...stdinFields(stdin), execId };
    const call = { method: "POST", path: pathOf(this.#remote, "exec"), json, signal, repeatable: true } as const;
    return this.#orAbandoned(execId, signal, () => this.#remote.transport.json(execResultSchema, call));
  }

  async spawn(command: string | readonly string[], options: SpawnOptions = {}): Promise<SpawnedExec> {
    this.#remote.check();
    const execId = options.execId ?? randomId();
    const keepStdinOpen = options.keepStdinOpen ?? false;
    const fields = { ...commandFields(command), ...pickSpawnOptions(options), ...stdinFields(options.stdin) };
    const json = { ...fields, execId, keepStdinOpen, background: true };
    const path = pathOf(this.#remote, "exec");
    const call = { method: "POST", path, json, signal: options.signal, repeatable: true } as const;
    return this.#orAbandoned(execId, options.signal, () => this.#remote.transport.json(backgroundExecReply, call));
  }

  /** A caller that gives up wants the command to end. A failure to end it must not hide the caller's own reason. */
  async #orAbandoned<T>(execId: string, signal: AbortSignal | undefined, ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      if (signal?.aborted === true) await this.#execs.abandon(execId);
      signal?.throwIfAborted();
      throw error;
    }
  }

  async processes(): Promise<readonly ProcessInfo[]> {
    this.#remote.check();
    const call = { method: "GET", path: pathOf(this.#remote, "processes"), repeatable: true } as const;
    return (await this.#remote.transport.json(processListSchema, call)).processes;
  }

  async usage(): Promise<ResourceUsage> {
    this.#remote.check();
    const call = { method: "GET", path: pathOf(this.#remote, "usage"), repeatable: true } as const;
    return this.#remote.transport.json(usageSchema, call);
  }
}

class RemoteSessions implements SandboxSessions {
  readonly #remote: RemoteThread;

  constructor(remote: RemoteThread) {
    this.#remote = remote;
  }

  async open(options: SessionOptions = {}): Promise<SessionInfo> {
    this.#remote.check();
    const repeatable = options.sessionId !== undefined;
    const call = { method: "POST", path: pathOf(this.#remote, "sessions"), json: options, repeatable } as const;
    return this.#remote.transport.json(sessionInfoSchema, call);
  }

  async exec(sessionId: string, command: string, options: SessionExecOptions = {}): Promise<SessionExecResult> {
    this.#remote.check();
    const { stdin, timeoutMs, outputMaxBytes, signal } = options;
    const limits = {
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      ...(outputMaxBytes === undefined ? {} : { outputMaxBytes }),
    };
    const json = { command, ...stdinFields(stdin), ...limits };
    const path = pathOf(this.#remote, `sessions/${segment(sessionId)}/exec`);
    return this.#remote.transport.json(sessionExecResultSchema, { method: "POST", path, json, signal });
  }

  async output(sessionId: string, options: OutputOptions = {}): Promise<OutputSoFar> {
    return readOutput(this.#remote, `sessions/${segment(sessionId)}/output`, options);
  }

  async list(): Promise<readonly SessionInfo[]> {
    this.#remote.check();
    const call = { method: "GET", path: pathOf(this.#remote, "sessions"), repeatable: true } as const;
    return (await this.#remote.transport.json(sessionListSchema, call)).sessions;
  }

  async close(sessionId: string): Promise<void> {
    this.#remote.check();
    const path = pathOf(this.#remote, `sessions/${segment(sessionId)}`);
    await this.#remote.transport.done({ method: "DELETE", path, repeatable: true });
  }
}

class RemotePorts implements SandboxPorts {
  readonly #remote: RemoteThread;

  constructor(remote: RemoteThread) {
    this.#remote = remote;
  }

  async list(): Promise<readonly ListeningPort[]> {
    this.#remote.check();
    const call = { method: "GET", path: pathOf(this.#remote, "ports"), repeatable: true } as const;
    return (await this.#remote.transport.json(portListSchema, call)).ports;
  }

  async waitFor(port: number, { timeoutMs, signal }: WaitOptions): Promise<void> {
    this.#remote.check();
    const path = pathOf(this.#remote, `ports/${port}/wait`);
    await this.#remote.transport.done({ method: "POST", path, json: { timeoutMs }, signal, repeatable: true });
  }
}

function commandFields(command: string | readonly string[]): { command: string } | { argv: readonly string[] } {
  return typeof command === "string" ? { command } : { argv: command };
}
