/**
 * A sandbox with an AIO server: the narrow view that tool code gets.
 *
 * AIO has commands and files. Its shell sessions mix both output streams, its terminals and watches are undocumented,
 * and it reports no processes, usage or listening ports: those are `capability_missing` here.
 */

import type {
  ExecOptions,
  ExecResult,
  Generation,
  ProcessInfo,
  ResourceUsage,
  Sandbox,
  SandboxExecs,
  SandboxFiles,
  SandboxId,
  SpawnedExec,
  SpawnOptions,
} from "@sandlot/contract";
import { noPorts, noSessions, noTerminals } from "../../backend/unsupported.ts";
import type { AioCalls } from "./calls.ts";
import { missing } from "./checks.ts";
import { AioExecs } from "./exec/execs.ts";
import { Executor } from "./exec/executor.ts";
import { ExecMemory } from "./exec/memory.ts";
import { BashSessions } from "./exec/sessions.ts";
import { AioFiles } from "./files/files.ts";
import { Scripts } from "./files/scripts.ts";
import { Staging } from "./files/staging.ts";

const NAME = "aio";

export class AioSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  readonly execs: SandboxExecs;
  readonly files: SandboxFiles;
  readonly sessions = noSessions(NAME);
  readonly terminals = noTerminals(NAME);
  readonly ports = noPorts(NAME);
  readonly #executor: Executor;
  readonly #sessions: BashSessions;

  /** `environment` applies to every command. */
  constructor(calls: AioCalls, environment: Readonly<Record<string, string>>) {
    this.id = calls.sandboxId;
    this.generation = calls.generation;
    const sessions = new BashSessions(calls);
    this.#sessions = sessions;
    const memory = new ExecMemory();
    const staging = new Staging(calls);
    this.execs = new AioExecs(calls, sessions, memory);
    this.files = new AioFiles(calls, new Scripts(calls, sessions), staging);
    this.#executor = new Executor({ calls, sessions, memory, staging, environment });
  }

  exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult> {
    return this.#executor.exec(command, options);
  }

  spawn(command: string | readonly string[], options?: SpawnOptions): Promise<SpawnedExec> {
    return this.#executor.spawn(command, options);
  }

  /** Releases what the server keeps for this object. Running commands go on. */
  letGo(): Promise<void> {
    return this.#sessions.letGo();
  }

  processes(): Promise<readonly ProcessInfo[]> {
    return Promise.reject(missing("processes", "a list of processes"));
  }

  usage(): Promise<ResourceUsage> {
    return Promise.reject(missing("usage", "what the sandbox uses"));
  }
}
