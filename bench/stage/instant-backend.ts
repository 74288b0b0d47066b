/**
 * A backend that takes no time and keeps nothing: it measures the fleet alone.
 *
 * It cannot list what it created, so the reconciler must not run while it is in use (see `bench-fleet.ts`), and its
 * sandboxes support only attaching.
 */

import type { EngineRef, Sandbox } from "@sandlot/contract";
import type {
  Activity,
  Attachment,
  Backend,
  Created,
  CreateSpec,
  EngineObject,
  Target,
  WorkspaceSight,
  Workspaces,
} from "../../packages/fleet/src/backend/backend.ts";
import type { Markers } from "../../packages/fleet/src/backend/markers.ts";
import { partialSandbox } from "../../packages/fleet/src/testing/partial-sandbox.ts";
import type { Liveness } from "../../packages/fleet/src/world/world.ts";

export class InstantBackend implements Backend {
  readonly name = "instant";
  readonly engineId = "instant";
  readonly capabilities: Backend["capabilities"] = new Set();
  readonly workspaces: Workspaces = new NoWorkspaces();
  readonly markers: Markers = { write: async () => {}, list: async () => [], drop: async () => {} };
  #made = 0;

  async create(_spec: CreateSpec): Promise<Created> {
    this.#made += 1;
    return { ref: `instant:${this.#made}` as EngineRef, place: "home", workspace: "new" };
  }

  async attach({ sandboxId, generation }: Target): Promise<Attachment> {
    return new InstantAttachment(partialSandbox(sandboxId, generation));
  }

  async rebind(): Promise<void> {}

  async probe(): Promise<Liveness> {
    return "alive";
  }

  async destroy(): Promise<void> {}

  async list(): Promise<readonly EngineObject[]> {
    return [];
  }

  watch(): () => void {
    return () => undefined;
  }

  async activity(): Promise<Activity> {
    return { runningExecs: 0, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 };
  }

  async close(): Promise<void> {}
}

class InstantAttachment implements Attachment {
  readonly sandbox: Sandbox;
  readonly closed: Promise<void>;
  #end: () => void = () => undefined;

  constructor(sandbox: Sandbox) {
    this.sandbox = sandbox;
    this.closed = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  async close(): Promise<void> {
    this.#end();
  }
}

class NoWorkspaces implements Workspaces {
  async latestGeneration(): Promise<number> {
    return 0;
  }
  async look(): Promise<WorkspaceSight> {
    return { home: true, slot: false, stale: false };
  }
  async moveIn(): Promise<void> {}
  async makeIn(): Promise<void> {}
  async moveHome(): Promise<void> {}
  async quarantine(): Promise<void> {}
  async purge(): Promise<void> {}
}
