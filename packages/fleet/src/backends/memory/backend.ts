/**
 * The `memory` backend: sandboxes inside this process, with a file tree and a shell of their own. It is a real
 * implementation of the contract, for agents' tests and for trying things out; it isolates nothing from the host's
 * processor and memory, so it is no place for code that nobody trusts.
 *
 * Everything it does is a call to its engine (`engine-api.ts`). What is decided here: how a call is abandoned, and that
 * a blueprint asking for what this backend lacks is refused.
 */

import {
  type EngineRef,
  type ExecOptions,
  type ExecResult,
  type FleetId,
  type Sandbox,
  type SandboxFiles,
  SandlotError,
} from "@sandlot/contract";
import type {
  Activity,
  Attachment,
  Backend,
  Capability,
  Created,
  CreateSpec,
  Credentials,
  EngineEvent,
  EngineObject,
  ListOptions,
  Target,
  WorkspaceSpot,
  Workspaces,
} from "../../backend/backend.ts";
import type { Blueprint } from "../../backend/blueprint.ts";
import { abortable } from "../../world/waiting.ts";
import type { Liveness, World } from "../../world/world.ts";
import type { EngineApi, FileAnswer, FileCall, WorkspaceStep } from "./engine-api.ts";

export interface MemoryBackendOptions {
  readonly fleetId: FleetId;
  readonly engine: EngineApi;
  readonly world: World;
}

const NAME = "memory";

export function createMemoryBackend(options: MemoryBackendOptions): Backend {
  return new MemoryBackend(options);
}

class MemoryBackend implements Backend {
  readonly name = NAME;
  readonly capabilities: ReadonlySet<Capability> = new Set(["late-binding"]);
  readonly workspaces: Workspaces;
  readonly #engine: EngineApi;
  readonly #fleetId: FleetId;
  readonly #world: World;
  readonly #subscriptions = new Set<() => void>();
  readonly #attachments = new Set<Attachment>();
  #closed = false;

  constructor({ fleetId, engine, world }: MemoryBackendOptions) {
    this.#engine = engine;
    this.#fleetId = fleetId;
    this.#world = world;
    this.workspaces = workspacesOf(engine, fleetId);
  }

  async create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    checkBlueprint(spec.blueprint);
    return this.#ask("create", signal, () => this.#engine.create(spec));
  }

  async attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    await this.#ask("attach", signal, () => this.#engine.greet(target));
    const attachment = new MemoryAttachment(this.#engine, target, this.#world);
    this.#attachments.add(attachment);
    void attachment.closed.then(() => this.#attachments.delete(attachment));
    return attachment;
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    return this.#ask("rebind", signal, () => this.#engine.rebind(target, from));
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.#ask("probe", signal, () => this.#engine.probe(ref));
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.#ask("destroy", signal, () => this.#engine.remove(ref));
  }

  /** Always consistent: there is nothing between the engine and what it has. */
  list({ sandboxId }: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.#ask("list", signal, () => this.#engine.list(this.#fleetId, sandboxId));
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    const unsubscribe = this.#engine.subscribe((notice) => {
      if (notice.type === "resync") listener({ type: "resync" });
      else if (notice.fleet === this.#fleetId) listener({ type: "died", ref: notice.ref, sandboxId: notice.sandboxId });
    });
    const stop = () => {
      this.#subscriptions.delete(stop);
      unsubscribe();
    };
    this.#subscriptions.add(stop);
    return stop;
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.#ask("activity", signal, () => this.#engine.activity(ref));
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const stop of [...this.#subscriptions]) stop();
    await Promise.all([...this.#attachments].map((attachment) => attachment.close()));
  }

  /** Asks the engine, and stops waiting when the signal fires. A signal that has fired already asks nothing. */
  async #ask<T>(operation: string, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    if (this.#closed) throw new SandlotError("fleet_closed", { operation });
    signal.throwIfAborted();
    return abortable(call(), signal);
  }
}

class MemoryAttachment implements Attachment {
  readonly sandbox: Sandbox;
  readonly closed: Promise<void>;
  readonly #engine: EngineApi;
  readonly #target: Target;
  readonly #world: World;
  #isClosed = false;
  #markClosed: () => void = () => {};

  constructor(engine: EngineApi, target: Target, world: World) {
    this.#engine = engine;
    this.#target = target;
    this.#world = world;
    this.closed = new Promise((resolve) => {
      this.#markClosed = resolve;
    });
    const exec = (command: string | readonly string[], options?: ExecOptions) => this.#exec(command, options);
    this.sandbox = { id: target.sandboxId, generation: target.generation, exec, files: this.#files() };
    // An engine that goes away ends the connection, too.
    engine.ended(target.ref).then(this.#markClosed, this.#markClosed);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#markClosed();
  }

  async #exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const { execId, cwd, env, stdin, timeoutMs, signal } = options;
    this.#check();
    signal?.throwIfAborted();
    const id = execId ?? this.#world.randomHex(8);
    const running = this.#engine.exec(this.#target, {
      execId: id,
      command,
      repeatable: execId !== undefined,
      ...(cwd === undefined ? {} : { cwd }),
      ...(env === undefined ? {} : { env }),
      ...(stdin === undefined ? {} : { stdin: typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    });
    if (signal === undefined) return running;
    try {
      return await abortable(running, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
      running.catch(() => {});
      // Waits until the tree has ended. An engine that cannot be asked must not hide why the caller gave up.
      await this.#engine.killExec(this.#target, id).catch(() => {});
      throw signal.reason;
    }
  }

  #files(): SandboxFiles {
    const call =
      <Name extends FileCall>(name: Name) =>
      async (...args: Parameters<SandboxFiles[Name]>): Promise<FileAnswer<Name>> => {
        this.#check();
        return this.#engine.file(this.#target, name, args);
      };
    return {
      read: call("read"),
      readText: call("readText"),
      write: call("write"),
      append: call("append"),
      mkdir: call("mkdir"),
      rename: call("rename"),
      remove: call("remove"),
      stat: call("stat"),
      list: call("list"),
      glob: call("glob"),
      grep: call("grep"),
    };
  }

  #check(): void {
    if (!this.#isClosed) return;
    throw new SandlotError("sandbox_unreachable", {
      sandboxId: this.#target.sandboxId,
      problem: "the attachment was closed",
      retryAfterMs: 0,
    });
  }
}

function workspacesOf(engine: EngineApi, fleetId: FleetId): Workspaces {
  const step = (name: WorkspaceStep) => async (spot: WorkspaceSpot) => {
    await engine.workspace(fleetId, name, spot);
  };
  return {
    look: (spot) => engine.workspace(fleetId, "look", spot),
    moveIn: step("moveIn"),
    makeIn: step("makeIn"),
    moveHome: step("moveHome"),
    quarantine: step("quarantine"),
    purge: step("purge"),
    writeMarker: (marker) => engine.writeMarker(fleetId, marker),
    markers: (sandboxId) => engine.markers(fleetId, sandboxId),
    dropMarker: (sandboxId, generation) => engine.dropMarker(fleetId, sandboxId, generation),
  };
}

/** Network policies are kept by having no network at all; what remains is what somebody would miss. */
function checkBlueprint({ image, mounts, limits }: Blueprint): void {
  const missing = (capability: Capability, neededBy: string) =>
    new SandlotError("capability_missing", { backend: NAME, capability, neededBy });
  if (image !== undefined) throw missing("image", "the blueprint's image");
  if (mounts.length > 0) throw missing("mounts", "the blueprint's mounts");
  if (Object.values(limits).some((limit) => limit !== undefined)) throw missing("limits", "the blueprint's limits");
}
