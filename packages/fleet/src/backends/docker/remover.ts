/**
 * Removes a sandbox: the container first, until the engine confirms that it is gone, then everything that was made for
 * it. Every step is idempotent, so several processes may run them at once, and any process can finish a half-done
 * removal.
 */

import { type EngineRef, type FleetId, SandlotError } from "@sandlot/contract";
import type { Place } from "../../backend/backend.ts";
import type { Account } from "../../host/accounts/index.ts";
import type { Layout, ObjectName } from "../../host/layout.ts";
import type { DiskWorkspaces } from "../../host/workspaces/disk-workspaces.ts";
import { abortable, sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { AioRecords } from "./aio/records.ts";
import { removeSocketDirectory } from "./container/socket-directory.ts";
import type { ContainerAccounts } from "./container-accounts.ts";
import type { Egresses } from "./egress.ts";
import type { Engine } from "./engine/engine.ts";
import { unavailable } from "./engine/trouble.ts";
import type { ContainerLiveness } from "./liveness.ts";
import type { ContainerObjects, ObjectRecord } from "./objects/container-objects.ts";
import { fleetFilter, parseLabels, parseRef, partsOf } from "./objects/labels.ts";

export interface RemoverParts {
  readonly world: World;
  readonly engine: Engine;
  readonly fleetId: FleetId;
  readonly layout: Layout;
  readonly objects: ContainerObjects;
  readonly liveness: ContainerLiveness;
  readonly workspaces: DiskWorkspaces;
  readonly egresses: Egresses;
  readonly aioRecords: AioRecords;
  readonly accounts: ContainerAccounts;
}

const LOOK_MS = 20;
const LOOK_MAX_MS = 500;
const NEVER = new AbortController().signal;

export class Remover {
  readonly #parts: RemoverParts;

  constructor(parts: RemoverParts) {
    this.#parts = parts;
  }

  /** Resolves when the engine has confirmed that all is removed, except for a workspace in its slot. */
  async destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    const parsed = parseRef(ref);
    if (parsed === null)
      throw new SandlotError("internal", { problem: `${ref} is no reference of the docker backend` });
    const { objects, liveness, engine } = this.#parts;
    const object = await objects.get(parsed.name);
    if (!liveness.isOurEngine(object))
      throw unavailable("another engine answers than the one that has the container", [engine.facts.address]);
    const known = parsed.containerId ?? object?.container?.containerId ?? null;
    const place = await this.#removeContainers(parsed.name, known, signal);
    await this.#removeRest(parsed.name, object?.record.place ?? place, object?.record.account ?? null);
  }

  /** Undoes a half-finished create of this process, also when another process has already forgotten the object. */
  async unmake(name: ObjectName, record: ObjectRecord, containerId: string | null): Promise<void> {
    await this.#removeContainers(name, containerId, NEVER);
    await this.#removeRest(name, record.place, record.account);
  }

  /** Forgets an object that is kept only for the workspace in its slot, once that has left. Returns whether it did. */
  async settle(name: ObjectName, place: Place): Promise<boolean> {
    const { workspaces, objects } = this.#parts;
    if (place === "home") await workspaces.dropMarkers(partsOf(name).sandboxId as never);
    else if ((await workspaces.dropSlot(place)) === "occupied") return false;
    await objects.forget(name);
    return true;
  }

  async #removeRest(name: ObjectName, place: Place | null, account: Account | null): Promise<void> {
    const { layout, objects, egresses, aioRecords, accounts } = this.#parts;
    await egresses.stop(name);
    accounts.release(name, account);
    await aioRecords.forget(name);
    removeSocketDirectory(layout, name);
    if (place === null) return objects.forget(name);
    if (!(await this.settle(name, place))) await objects.markRemains(name);
  }

  /** By its id and by its labels: a create whose response was lost may have made another. */
  async #removeContainers(name: ObjectName, known: string | null, signal: AbortSignal): Promise<Place | null> {
    const { engine, fleetId } = this.#parts;
    const { sandboxId, generation } = partsOf(name);
    const labelled = await abortable(engine.list(fleetFilter(fleetId, sandboxId, generation)), signal);
    const place = labelled.map(({ Labels }) => parseLabels(Labels)?.place ?? null)[0] ?? null;
    const ids = new Set([...labelled.map(({ Id }) => Id), ...(known === null ? [] : [known])]);
    await Promise.all([...ids].map((id) => this.#removeContainer(id, signal)));
    return place;
  }

  async #removeContainer(containerId: string, signal: AbortSignal): Promise<void> {
    const { engine, world } = this.#parts;
    for (let waitMs = LOOK_MS; ; waitMs = Math.min(waitMs * 2, LOOK_MAX_MS)) {
      await abortable(engine.remove(containerId), signal);
      if ((await abortable(engine.inspect(containerId), signal)) === null) return;
      await sleep(world, waitMs, signal);
    }
  }
}
