/**
 * The backend of a child: the contract of `backend/backend.ts` over the engine's socket. It has no state except its
 * listeners.
 */

import type { EngineRef } from "@sandlot/contract";
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
  Workspaces,
} from "../../../packages/fleet/src/backend/backend.ts";
import type { Markers } from "../../../packages/fleet/src/backend/markers.ts";
import type { Liveness } from "../../../packages/fleet/src/world/world.ts";
import { BACKEND } from "../settings.ts";
import type { Push } from "../wire.ts";
import { EngineConnection } from "./engine-connection.ts";
import { journalSandbox } from "./journal-sandbox.ts";

export class CrashBackend implements Backend {
  readonly name = BACKEND;
  readonly engineId = BACKEND;
  readonly capabilities: ReadonlySet<Capability> = new Set<Capability>(["late-binding"]);
  readonly workspaces: Workspaces;
  readonly markers: Markers;
  readonly engine: EngineConnection;
  readonly #listeners: Set<(event: EngineEvent) => void>;
  readonly #closings: Map<number, () => void>;

  private constructor(
    engine: EngineConnection,
    listeners: Set<(event: EngineEvent) => void>,
    closings: Map<number, () => void>,
  ) {
    this.engine = engine;
    this.#listeners = listeners;
    this.#closings = closings;
    this.workspaces = {
      latestGeneration: () => engine.ask("latestGeneration", []),
      look: (spot) => engine.ask("look", [spot]),
      moveIn: (spot) => engine.ask("moveIn", [spot]),
      makeIn: (spot) => engine.ask("makeIn", [spot]),
      moveHome: (spot) => engine.ask("moveHome", [spot]),
      quarantine: (spot) => engine.ask("quarantine", [spot]),
      purge: (spot) => engine.ask("purge", [spot]),
    };
    this.markers = {
      write: (marker) => engine.ask("writeMarker", [marker]),
      list: (sandboxId) => engine.ask("markers", [sandboxId]),
      drop: (sandboxId, generation) => engine.ask("dropMarker", [sandboxId, generation]),
    };
  }

  static async open(path: string, name: string, onLost: () => void): Promise<CrashBackend> {
    const listeners = new Set<(event: EngineEvent) => void>();
    const closings = new Map<number, () => void>();
    const onPush = (push: Push) => {
      if (push.push === "event") for (const listener of [...listeners]) listener(push.event);
      if (push.push === "closed") closings.get(push.attachment)?.();
    };
    const engine = await EngineConnection.open(path, onPush, onLost);
    await engine.ask("hello", [{ name, pid: process.pid }]);
    return new CrashBackend(engine, listeners, closings);
  }

  create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    return this.engine.ask("create", [spec], signal);
  }

  async attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    const asked = this.engine.ask("attach", [target]);
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const close = async (attachment: number) => {
      this.#closings.delete(attachment);
      resolve();
      await this.engine.ask("detach", [attachment]);
    };
    const attachment = await this.#unlessAborted(asked, signal, close);
    this.#closings.set(attachment, resolve);
    return { sandbox: journalSandbox(this.engine, attachment, target), closed, close: () => close(attachment) };
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    return this.engine.ask("rebind", [target, from], signal);
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.engine.ask("probe", [ref], signal);
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.engine.ask("destroy", [ref], signal);
  }

  list(options: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.engine.ask("list", [options], signal);
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.engine.ask("activity", [ref], signal);
  }

  /** The connection stays: the child sends to the engine until it ends. */
  async close(): Promise<void> {
    this.#listeners.clear();
  }

  /** An aborted wait must not leave its connection open. */
  #unlessAborted(
    asked: Promise<number>,
    signal: AbortSignal,
    close: (attachment: number) => Promise<void>,
  ): Promise<number> {
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        reject(signal.reason);
        asked.then(close).catch(() => {});
      };
      if (signal.aborted) return onAbort();
      signal.addEventListener("abort", onAbort, { once: true });
      asked.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
    });
  }
}
