/**
 * A sandbox through its daemon: the narrow view for tool code, and the fleet's own calls.
 *
 * Invariants
 * - Every failure is an error of the contract (see `held-daemon.ts`).
 * - A command whose daemon was restarted has the result `lost`. Other calls under way are `sandbox_unreachable`, and
 *   may be retried with the next attachment.
 * - Aborting an exec ends it inside, and its call rejects at once.
 */

import {
  type DaemonActivity,
  daemonActivitySchema,
  type ExecOptions,
  type ExecResult,
  type Generation,
  type ListeningPort,
  type ProcessInfo,
  pickExecOptions,
  pickSpawnOptions,
  type ResourceUsage,
  SANDBOX_LIMITS,
  type Sandbox,
  type SandboxId,
  type SandboxPorts,
  type SpawnedExec,
  type SpawnOptions,
  spawnedExecSchema,
  usageSchema,
  type WaitOptions,
} from "@sandlot/contract";
import { z } from "zod";
import { DaemonExecs } from "./daemon-execs.ts";
import { DaemonFiles } from "./daemon-files.ts";
import { DaemonSessions } from "./daemon-sessions.ts";
import { DaemonTerminals } from "./daemon-terminals.ts";
import type { Calls } from "./held-daemon.ts";
import * as replies from "./replies.ts";
import { type Call, encodeCall, type Wire } from "./wire.ts";

export class DaemonSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  readonly execs: DaemonExecs;
  readonly files: DaemonFiles;
  readonly sessions: DaemonSessions;
  readonly terminals: DaemonTerminals;
  readonly ports: SandboxPorts;
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.id = calls.wire.target.sandboxId as SandboxId;
    this.generation = calls.wire.target.generation as Generation;
    this.#calls = calls;
    this.execs = new DaemonExecs(calls);
    this.files = new DaemonFiles(calls);
    this.sessions = new DaemonSessions(calls);
    this.terminals = new DaemonTerminals(calls);
    this.ports = new DaemonPorts(calls);
  }

  async exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const execId = options.execId ?? this.#calls.world.randomHex(12);
    const startedAt = this.#calls.world.monotonicMs();
    const outputMaxBytes = replies.outputLimit(options);
    try {
      // The daemon enforces the timeout. When it has not responded long after, something inside has stopped it.
      const waitsMs = options.timeoutMs ?? SANDBOX_LIMITS.execTimeoutMs;
      const limits = { maxBytes: replies.resultMaxBytes(outputMaxBytes), waitsMs };
      const asked = { ...options, outputMaxBytes };
      return await this.#call("/sandlot/exec", command, execId, asked, async (wire, call) =>
        replies.parseResult(await wire.bytes({ ...call, ...limits }), z.object({})),
      );
    } catch (error) {
      options.signal?.throwIfAborted();
      const { error: known, restarted } = await this.#calls.explain(error);
      if (!restarted) throw known;
      return replies.lostResult(execId, this.#calls.world.monotonicMs() - startedAt);
    }
  }

  async spawn(command: string | readonly string[], options: SpawnOptions = {}): Promise<SpawnedExec> {
    const execId = options.execId ?? this.#calls.world.randomHex(12);
    try {
      return await this.#call("/sandlot/spawn", command, execId, options, (wire, asked) =>
        wire.ask(spawnedExecSchema, asked),
      );
    } catch (error) {
      options.signal?.throwIfAborted();
      throw (await this.#calls.explain(error)).error;
    }
  }

  activity(signal?: AbortSignal): Promise<DaemonActivity> {
    return this.#calls.get(daemonActivitySchema, "/sandlot/activity", signal);
  }

  processes(): Promise<readonly ProcessInfo[]> {
    return this.#calls.get(replies.processesSchema, "/sandlot/processes");
  }

  usage(): Promise<ResourceUsage> {
    return this.#calls.get(usageSchema, "/sandlot/usage");
  }

  async #call<T>(
    path: "/sandlot/exec" | "/sandlot/spawn",
    command: string | readonly string[],
    execId: string,
    options: SpawnOptions & Pick<ExecOptions, "outputMaxBytes">,
    ask: (wire: Wire, call: Call) => Promise<T>,
  ): Promise<T> {
    const { stdin, signal } = options;
    signal?.throwIfAborted();
    const picked = path === "/sandlot/exec" ? pickExecOptions(options) : pickSpawnOptions(options);
    const repeatable = options.execId !== undefined;
    const body = encodeCall({ ...picked, execId, repeatable, command, hasStdin: stdin !== undefined }, stdin);
    const onAbort = () => void this.execs.kill(execId).catch(() => {});
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await this.#calls.raw((wire) => ask(wire, { method: "POST", path, body, ...(signal && { signal }) }));
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }
}

class DaemonPorts implements SandboxPorts {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  list(): Promise<readonly ListeningPort[]> {
    return this.#calls.get(replies.portsSchema, "/sandlot/ports");
  }

  async waitFor(port: number, { timeoutMs, signal }: WaitOptions): Promise<void> {
    await this.#calls.post(replies.nothingSchema, "/sandlot/wait/port", { port, timeoutMs }, signal, timeoutMs);
  }
}
