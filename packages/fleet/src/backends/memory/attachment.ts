/**
 * A holder's connection to a sandbox in memory, and tool code's view of that sandbox.
 */

import { type Sandbox, SandlotError } from "@sandlot/contract";
import type { Attachment, Target } from "../../backend/backend.ts";
import { noPorts, noSessions, noTerminals } from "../../backend/unsupported.ts";
import type { World } from "../../world/world.ts";
import { memoryExec, memoryExecs, memorySpawn } from "./attached-execs.ts";
import { memoryFiles } from "./attached-files.ts";
import type { EngineApi } from "./engine-api.ts";

const NAME = "memory";

/** The parts of an attached sandbox share these. */
export interface Attached {
  readonly engine: EngineApi;
  readonly target: Target;
  readonly world: World;
  /** Throws when the attachment was closed. */
  check(): void;
}

export class MemoryAttachment implements Attachment {
  readonly sandbox: Sandbox;
  readonly closed: Promise<void>;
  #isClosed = false;
  #markClosed: () => void = () => {};

  constructor(engine: EngineApi, target: Target, world: World) {
    this.closed = new Promise((resolve) => {
      this.#markClosed = resolve;
    });
    const { sandboxId, generation } = target;
    const attached: Attached = { engine, target, world, check: () => this.#check(sandboxId) };
    this.sandbox = {
      id: sandboxId,
      generation,
      exec: (command, options) => memoryExec(attached, command, options),
      spawn: (command, options) => memorySpawn(attached, command, options),
      execs: memoryExecs(attached),
      files: memoryFiles(attached),
      sessions: noSessions(NAME),
      terminals: noTerminals(NAME),
      ports: noPorts(NAME),
      // There are no processes of the host's kind here, and nothing measures them.
      processes: async () => [],
      usage: async () => ({
        memoryBytes: null,
        memoryMaxBytes: null,
        processCount: null,
        processMax: null,
        cpuMs: null,
      }),
    };
    // An engine that goes away ends the connection, too.
    engine.ended(target.ref).then(this.#markClosed, this.#markClosed);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#markClosed();
  }

  #check(sandboxId: string): void {
    if (!this.#isClosed) return;
    const problem = "the attachment was closed";
    throw new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: 0 });
  }
}
