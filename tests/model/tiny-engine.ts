/**
 * The smallest engine a fleet can run on: sandboxes are entries in a map, and a command is a file that counts its
 * appends. fast-check's scheduler decides when each response comes, so that calls overtake one another in all ways.
 */

import { type EngineRef, type Generation, type Sandbox, SandlotError, type Token } from "@sandlot/contract";
import type { Scheduler } from "fast-check";
import type {
  Attachment,
  Backend,
  CreateSpec,
  EngineEvent,
  Target,
  Workspaces,
} from "../../packages/fleet/src/backend/backend.ts";
import type { Markers } from "../../packages/fleet/src/backend/markers.ts";
import { partialSandbox } from "../../packages/fleet/src/testing/partial-sandbox.ts";

interface Box {
  readonly spec: CreateSpec;
  readonly generation: Generation;
  readonly token: Token;
  alive: boolean;
}

export class TinyEngine implements Backend {
  readonly engineId = "tiny";
  readonly name = "tiny";
  readonly capabilities = new Set<never>();
  readonly boxes = new Map<EngineRef, Box>();
  /** The number of requested creates. */
  created = 0;
  readonly #scheduler: Scheduler;
  readonly #listeners = new Set<(event: EngineEvent) => void>();

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  /** Ends a thread's sandbox as a crash does. */
  kill(thread: string): void {
    for (const [ref, box] of this.boxes) {
      if (box.spec.marker?.thread !== thread || !box.alive) continue;
      box.alive = false;
      for (const listener of this.#listeners) listener({ type: "died", ref, sandboxId: box.spec.labels.sandboxId });
    }
  }

  async create(spec: CreateSpec) {
    await this.#later("create");
    this.created += 1;
    const ref = `tiny-${this.created}` as EngineRef;
    this.boxes.set(ref, { spec, generation: spec.generation, token: spec.token, alive: true });
    return { ref, place: "home", workspace: "new" } as const;
  }

  async attach(target: Target): Promise<Attachment> {
    await this.#later("attach");
    this.#reach(target);
    return { sandbox: this.#sandbox(target), closed: new Promise(() => undefined), close: async () => undefined };
  }

  async rebind(): Promise<void> {
    await this.#later("rebind");
  }

  async probe(ref: EngineRef) {
    await this.#later("probe");
    return this.boxes.get(ref)?.alive === true ? ("alive" as const) : ("dead" as const);
  }

  async destroy(ref: EngineRef): Promise<void> {
    await this.#later("destroy");
    this.boxes.delete(ref);
  }

  async list() {
    await this.#later("list");
    return [...this.boxes].map(([ref, { spec, alive }]) => ({
      ...{ ref, labels: spec.labels, place: "home" as const },
      liveness: alive ? ("alive" as const) : ("dead" as const),
    }));
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async activity() {
    await this.#later("activity");
    return { runningExecs: 0, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 };
  }

  /** Late binding is unused here, so a workspace is always at home. */
  readonly workspaces: Workspaces = {
    latestGeneration: async () => 0,
    look: async () => ({ home: true, slot: false, stale: false }),
    moveIn: async () => undefined,
    makeIn: async () => undefined,
    moveHome: async () => undefined,
    quarantine: async () => undefined,
    purge: async () => undefined,
  };

  readonly markers: Markers = { write: async () => undefined, list: async () => [], drop: async () => undefined };

  async close(): Promise<void> {
    this.#listeners.clear();
  }

  #sandbox(target: Target): Sandbox {
    const append = async () => {
      await this.#later("append");
      this.#reach(target);
    };
    const { sandboxId: id, generation } = target;
    return partialSandbox(id, generation, { files: { append } });
  }

  #reach({ ref, sandboxId, generation, token }: Target): void {
    const box = this.boxes.get(ref);
    if (box?.alive !== true) throw new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" });
    if (box.generation === generation && box.token === token) return;
    throw new SandlotError("stale_generation", { sandboxId, generation, current: box.generation });
  }

  #later(what: string): Promise<void> {
    return this.#scheduler.schedule(Promise.resolve(), what);
  }
}
