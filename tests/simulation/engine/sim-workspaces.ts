/** One instance's workspaces: single steps on the ledger, each of which may fail before or after it took effect. */

import { type SandboxId, SandlotError } from "@sandlot/contract";
import type { WorkspaceSight, WorkspaceSpot, Workspaces } from "../../../packages/fleet/src/backend/backend.ts";
import type { Checkpoints } from "../../../packages/fleet/src/backend/checkpoints.ts";
import type { Markers } from "../../../packages/fleet/src/backend/markers.ts";
import type { Instance } from "../process/instance.ts";
import { type EngineParts, isCutOff } from "./sim-backend.ts";
import { simCheckpoints } from "./sim-checkpoints.ts";

/** A step that may fail before or after it took effect. */
export type Step = <T>(step: string, effect: () => T) => Promise<T>;

export class SimWorkspaces implements Workspaces {
  readonly #instance: Instance;
  readonly #parts: EngineParts;

  constructor(instance: Instance, parts: EngineParts) {
    this.#instance = instance;
    this.#parts = parts;
    this.checkpoints = simCheckpoints(instance, parts, (step, effect) => this.#step(step, effect));
  }

  latestGeneration(): Promise<number> {
    return this.#step("latestGeneration", () => this.#parts.ledger.latestGeneration());
  }

  look(spot: WorkspaceSpot): Promise<WorkspaceSight> {
    return this.#beside("look", spot.sandboxId, () => this.#parts.ledger.look(spot));
  }

  moveIn(spot: WorkspaceSpot): Promise<void> {
    return this.#change("moveIn", spot, () => {
      if (!this.#parts.ledger.isStale(spot)) this.#parts.audit.used(this.#instance, spot);
      this.#parts.ledger.moveIn(spot);
    });
  }

  makeIn(spot: WorkspaceSpot): Promise<void> {
    return this.#change("makeIn", spot, () => this.#parts.ledger.makeIn(spot));
  }

  moveHome(spot: WorkspaceSpot): Promise<void> {
    return this.#change("moveHome", spot, () => this.#parts.ledger.moveHome(spot));
  }

  quarantine(spot: WorkspaceSpot): Promise<void> {
    return this.#step("quarantine", () => {
      const aside = this.#parts.ledger.quarantine(spot);
      if (aside !== null) this.#parts.audit.quarantined(aside);
    });
  }

  purge(spot: WorkspaceSpot): Promise<void> {
    return this.#change("purge", spot, () => {
      this.#parts.audit.purged(this.#instance, spot, this.#parts.ledger.purge(spot));
    });
  }

  readonly checkpoints: Checkpoints;

  /** They share the disk of the workspaces, and its failures. */
  readonly markers: Markers = {
    write: (marker) => this.#beside("writeMarker", marker.sandboxId, () => this.#parts.ledger.writeMarker(marker)),
    list: (sandboxId) => this.#beside("markers", sandboxId, () => this.#parts.ledger.markersOf(sandboxId)),
    drop: (sandboxId, generation) =>
      this.#beside("dropMarker", sandboxId, () => this.#parts.ledger.dropMarker(sandboxId, generation)),
  };

  #beside<T>(step: string, sandboxId: SandboxId, effect: () => T): Promise<T> {
    this.#parts.audit.sandboxAsked(this.#instance, sandboxId, step);
    return this.#step(step, effect);
  }

  #change(step: "moveIn" | "makeIn" | "moveHome" | "purge", spot: WorkspaceSpot, effect: () => void): Promise<void> {
    const { audit } = this.#parts;
    if (this.#instance.process.alive) audit.workspaceAsked(this.#instance, step, spot);
    return this.#step(step, () => {
      effect();
      audit.workspaceChanged(this.#instance, step, spot);
    });
  }

  #step<T>(step: string, effect: () => T): Promise<T> {
    const { faults, random, trace } = this.#parts;
    const ms = random.between(0, 4);
    const told = () => {
      const result = effect();
      trace.add(this.#instance.name, step, () => (result === undefined ? "" : JSON.stringify(result)));
      return result;
    };
    if (isCutOff(this.#instance, this.#parts))
      return this.#instance.calls.make<T>(
        { effectMs: null, answerMs: random.between(50, 1_500), error: failed(step) },
        told,
      );
    if (faults.hits("workspace-failed")) {
      return this.#instance.calls.make<T>({ effectMs: null, answerMs: ms, error: failed(step) }, told);
    }
    if (faults.hits("workspace-failed-after-effect")) {
      return this.#instance.calls.make<T>({ effectMs: ms, answerMs: ms, error: failed(step) }, told);
    }
    return this.#instance.calls.make<T>({ effectMs: ms, answerMs: ms }, told);
  }
}

function failed(step: string): SandlotError {
  return new SandlotError("create_failed", { backend: "simulated", problem: `${step} failed` });
}
