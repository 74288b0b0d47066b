/**
 * Removes a sandbox: its processes, then everything that was made for it, and its record last. Every step is
 * idempotent, so several processes may run them at once, and any process can finish a half-done removal.
 */

import { rm } from "node:fs/promises";
import { type EngineRef, SandlotError } from "@sandlot/contract";
import type { SandboxAccounts } from "../../host/accounts/index.ts";
import {
  type Layout,
  type ObjectName,
  privatePath,
  pulsePath,
  socketPath,
  unfinishedSocketPath,
} from "../../host/layout.ts";
import type { Limits } from "../../host/limits/index.ts";
import { identify, killProcess, processEnd } from "../../host/process-table.ts";
import type { DiskWorkspaces } from "../../host/workspaces/disk-workspaces.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Egresses } from "./egress.ts";
import { hasPulse, pulseHolders } from "./engine/pulse.ts";
import { formatRef, parseRef } from "./objects/engine-ref.ts";
import type { ObjectLiveness } from "./objects/object-liveness.ts";
import type { LocalObject, ObjectRecord, ObjectStore } from "./objects/object-store.ts";
import { endUnsafe } from "./unsafe/end-processes.ts";

export interface RemoverParts {
  readonly world: World;
  readonly layout: Layout;
  readonly objects: ObjectStore;
  readonly liveness: ObjectLiveness;
  readonly workspaces: DiskWorkspaces;
  readonly limits: Limits;
  readonly egresses: Egresses;
  readonly accounts: SandboxAccounts | null;
}

const LOOK_MS = 5;
/** A start that lost its fleet ends within about the time that Node takes to start. */
const PATIENCE_MS = 1_000;
const RETRY_AFTER_MS = 1_000;

export class Remover {
  readonly #parts: RemoverParts;

  constructor(parts: RemoverParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when all processes and files are removed, except for a workspace in its slot. An absent object is fine.
   */
  async destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    const parsed = parseRef(ref);
    if (parsed === null) throw new SandlotError("internal", { problem: `${ref} is no reference of the local backend` });
    const { liveness, world, objects } = this.#parts;
    const object = await objects.get(parsed.name);
    if (object !== null) return this.#remove(object, signal);
    if (parsed.process === null || liveness.ofReference(parsed) === "dead") return;
    // Its record is lost, but its process may still run.
    killProcess(parsed.process);
    await processEnd(parsed.process, world, signal);
  }

  /** Undoes a half-finished create of this process, also when another process has already forgotten the object. */
  async unmake(name: ObjectName, record: ObjectRecord): Promise<void> {
    const known = await this.#parts.objects.get(name);
    await this.#remove(known ?? { name, ref: formatRef(name, null), record, process: null, isRemains: false });
  }

  /** Forgets an object that is kept only for the workspace in its slot, once that has left. Returns whether it did. */
  async settle({ name, record }: LocalObject): Promise<boolean> {
    const { workspaces, objects } = this.#parts;
    if (record.place === "home") await workspaces.dropMarkers(record.labels.sandboxId);
    else if ((await workspaces.dropSlot(record.place)) === "occupied") return false;
    await objects.forget(name);
    return true;
  }

  async #remove(object: LocalObject, signal?: AbortSignal): Promise<void> {
    const { liveness, layout, limits, objects } = this.#parts;
    const { name, record } = object;
    if (record.maker.bootId !== this.#parts.world.identity.bootId && liveness.of(object) === "unknown") {
      const problem = "it was made by another machine that shares this directory";
      const { sandboxId } = record.labels;
      throw new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
    }
    await this.#end(object, signal);
    await this.#parts.egresses.stop(name);
    // No process of the account runs any more.
    if (record.account !== null) this.#parts.accounts?.release(name, record.account);
    await limits.open(name).release();
    await rm(privatePath(layout, name), { recursive: true, force: true });
    await rm(socketPath(layout, name), { force: true });
    await rm(unfinishedSocketPath(layout, name), { force: true });
    if (!(await this.settle(object))) await objects.markRemains(name);
  }

  async #end(object: LocalObject, signal?: AbortSignal): Promise<void> {
    const { world, layout, objects } = this.#parts;
    const { name, record } = object;
    if (object.isRemains || record.maker.bootId !== world.identity.bootId) return;
    // Read again: its maker may have recorded the process meanwhile.
    const process = object.process ?? (await objects.get(name))?.process ?? null;
    if (process !== null && record.isolation === "unsafe-process") await endUnsafe(name, process.init, world, signal);
    else if (process !== null) {
      killProcess(process.init);
      await processEnd(process.init, world, signal);
      if (process.monitor !== null) {
        // It ends with its child, unless a signal has stopped it.
        killProcess(process.monitor);
        await processEnd(process.monitor, world, signal);
      }
    }
    await this.#pulseEnd(pulsePath(layout, name), signal);
  }

  /** An unrecorded process gets no configuration, so it ends by itself; after a while it is killed. */
  async #pulseEnd(pulse: string, signal?: AbortSignal): Promise<void> {
    const { world } = this.#parts;
    const patientUntil = world.monotonicMs() + PATIENCE_MS;
    while (hasPulse(pulse)) {
      await sleep(world, LOOK_MS, signal);
      if (world.monotonicMs() < patientUntil) continue;
      for (const pid of pulseHolders(pulse)) {
        const holder = identify(pid);
        if (holder) killProcess(holder);
      }
    }
  }
}
