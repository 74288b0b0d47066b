/**
 * Unmaking a sandbox: everything that runs, then everything that was made for it, and what is known of it last.
 * Every step is idempotent, so several may be at it at once, and whoever finds half of it goes on.
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
/** A start that has lost its fleet takes about as long as a Node does. */
const PATIENCE_MS = 1_000;
const RETRY_AFTER_MS = 1_000;

export class Remover {
  readonly #parts: RemoverParts;

  constructor(parts: RemoverParts) {
    this.#parts = parts;
  }

  /** Resolves when nothing of it runs and nothing is left, but for a workspace in its slot. What is gone is fine. */
  async destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    const parsed = parseRef(ref);
    if (parsed === null) throw new SandlotError("internal", { problem: `${ref} is no reference of the local backend` });
    const { liveness, world, objects } = this.#parts;
    const object = await objects.get(parsed.name);
    if (object !== null) return this.#remove(object, signal);
    if (parsed.process === null || liveness.ofReference(parsed) === "dead") return;
    // Whatever was written down about it is lost; the process itself is not.
    killProcess(parsed.process);
    await processEnd(parsed.process, world, signal);
  }

  /** Unmakes what this process has half made, also when somebody else has already forgotten it. */
  async unmake(name: ObjectName, record: ObjectRecord): Promise<void> {
    const known = await this.#parts.objects.get(name);
    await this.#remove(known ?? { name, ref: formatRef(name, null), record, process: null, isRemains: false });
  }

  /** Forgets what was kept only for the workspace in its slot, when that has left. Answers whether it did. */
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
    // Nothing that has the account runs any more.
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
    // Read again: whoever makes it may have come this far meanwhile.
    const process = object.process ?? (await objects.get(name))?.process ?? null;
    if (process !== null && record.isolation === "unsafe-process") await endUnsafe(name, process.init, world, signal);
    else if (process !== null) {
      killProcess(process.init);
      await processEnd(process.init, world, signal);
      if (process.monitor !== null) await processEnd(process.monitor, world, signal);
    }
    await this.#pulseEnd(pulsePath(layout, name), signal);
  }

  /** Without its configuration, which only a recorded process gets, what was started ends by itself; or is helped. */
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
