/**
 * DeerFlow's provisioner on a fleet: sandboxes by ids that the client chooses.
 *
 *   create   known id? ─ the same sandbox, with the same URL
 *            otherwise ─ the thread's sandbox, leased, and a record of it
 *   find     a record whose sandbox lives
 *   remove   the sandbox ends, with its leases and its URL; files of a named thread stay
 *
 * Invariants
 * - An id belongs to one thread while its sandbox lives, and a thread to one id: an id's end would otherwise end a
 *   sandbox that another client uses.
 * - A record counts only while the fleet has its sandbox and its key exists. A store that recovers may not know the
 *   sandbox yet: then the answer is `store_recovering`, and no record is removed.
 * - A key sees, renews and ends only sandboxes of blueprints that it was granted.
 * - Every call ends before the client's own time limit (30 s to create, 15 s to remove, 10 s to look).
 */

import {
  AIO_TUNNEL_PORT,
  type ExtraMount,
  isSandlotError,
  parseThreadId,
  SandlotError,
  type UserId,
} from "@sandlot/contract";
import { DEFAULT_BLUEPRINT } from "../../config/defaults.ts";
import type { Fleet, Lease } from "../../fleet.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { DeerFlowDetail } from "../errors.ts";
import { type Caller, checkBlueprint } from "../guards/caller.ts";
import type { AioLinks } from "../previews/aio-links.ts";
import type { ThreadKey } from "../thread-key.ts";
import type { ThreadUse } from "../thread-use.ts";
import { checkExtraMounts, refusedMounts } from "./extra-mounts.ts";
import type { LivingRecords } from "./living-records.ts";
import { type ProvisionedLeases, PURPOSE } from "./provisioned-leases.ts";
import type { NewProvisioned, ProvisionedSandbox, ProvisionedSandboxes } from "./provisioned-sandboxes.ts";
import type { RecordSweep } from "./record-sweep.ts";

export interface ProvisionerParts {
  readonly fleet: Pick<Fleet, "find">;
  readonly threads: Pick<ThreadUse, "acquireAs" | "destroy">;
  readonly aioLinks: Pick<AioLinks, "endUses">;
  readonly records: ProvisionedSandboxes;
  readonly living: LivingRecords;
  readonly leases: ProvisionedLeases;
  readonly sweep: Pick<RecordSweep, "some" | "soon">;
  readonly world: World;
  readonly settings: { readonly blueprint: string; readonly hostBasePath?: string | undefined };
}

export interface Order {
  readonly id: string;
  /** `null`: the thread is named by the id. */
  readonly thread: string | null;
  readonly user: UserId;
  readonly mounts: readonly ExtraMount[];
}

/** Below the client's limits, with time left for the look at the key and for the response. */
const CREATE_MS = 25_000;
const REMOVE_MS = 10_000;
const LOOK_MS = 5_000;
/** How long the end of a sandbox is waited for; the rest is for the store. */
const STOP_MS = 8_000;

export class Provisioner {
  readonly #parts: ProvisionerParts;

  constructor(parts: ProvisionerParts) {
    this.#parts = parts;
  }

  create(caller: Caller, order: Order, signal: AbortSignal): Promise<ProvisionedSandbox> {
    const late = () => new SandlotError("acquire_timeout", { stage: "creating", timeoutMs: CREATE_MS });
    return within(this.#parts.world, CREATE_MS, signal, late, (bounded) => this.#create(caller, order, bounded));
  }

  find(caller: Caller, id: string): Promise<ProvisionedSandbox> {
    return this.#within(LOOK_MS, "GET of a provisioned sandbox", () => this.#find(caller, id));
  }

  list(caller: Caller): Promise<readonly ProvisionedSandbox[]> {
    return this.#within(LOOK_MS, "the list of provisioned sandboxes", () => this.#list(caller));
  }

  /** Whether the engine has confirmed the end. An unknown id has ended. An end that is late goes on. */
  remove(caller: Caller, id: string, signal: AbortSignal): Promise<boolean> {
    return this.#within(REMOVE_MS, "DELETE of a provisioned sandbox", () => this.#remove(caller, id, signal), signal);
  }

  #within<T>(ms: number, operation: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const problem = `it took longer than ${ms} ms`;
    const late = () => new SandlotError("store_unavailable", { operation, problem, retryAfterMs: 1_000 });
    return within(this.#parts.world, ms, signal, late, work);
  }

  async #find(caller: Caller, id: string): Promise<ProvisionedSandbox> {
    const record = await this.#parts.records.find(ownerOf(caller), id);
    const summary = record === null ? null : await this.#parts.living.one(record);
    if (record === null || summary === null) throw notFound(id);
    checkBlueprint(caller.blueprints, summary.blueprint);
    this.#parts.leases.renew(record);
    return record;
  }

  async #list(caller: Caller): Promise<readonly ProvisionedSandbox[]> {
    const { records, living, leases } = this.#parts;
    const owner = ownerOf(caller);
    const own = await living.all((await records.all()).filter((record) => record.owner === owner));
    const granted = own.filter(({ summary: { blueprint } }) => caller.blueprints?.includes(blueprint) !== false);
    for (const { record } of granted) leases.renew(record);
    return granted.map(({ record }) => record);
  }

  async #remove(caller: Caller, id: string, signal: AbortSignal): Promise<boolean> {
    const { records, fleet, threads, aioLinks } = this.#parts;
    const record = await records.find(ownerOf(caller), id);
    if (record === null) return true;
    const { user, thread, ownsThread } = record;
    const present = await fleet.find({ user, thread });
    const isPresent = present?.sandboxId === record.sandboxId;
    if (isPresent) checkBlueprint(caller.blueprints, present.blueprint);
    const options = { force: true, purge: ownsThread, timeoutMs: STOP_MS };
    // A later sandbox of the thread is not the client's to end. A store that recovers refuses to say that there is none.
    const outcome = isPresent || present === null ? await threads.destroy({ user, thread }, options, signal) : "absent";
    aioLinks.endUses(record.name);
    // An unconfirmed end keeps its record, so that asking again can tell; its URL leads nowhere by now.
    if (outcome === "stopping") return false;
    await records.remove(record);
    return true;
  }

  async #create(caller: Caller, order: Order, signal: AbortSignal): Promise<ProvisionedSandbox> {
    const { leases, settings, sweep } = this.#parts;
    const owner = ownerOf(caller);
    const thread = parseThreadId(order.thread ?? order.id);
    const key = { user: order.user, thread, granted: caller.blueprints };
    const known = await this.#known(caller, order, thread);
    if (known !== null) return known;
    await this.#refuseOthers(key, null);
    // Below the base lie the files of all users, so a key of one user mounts nothing.
    if (caller.scope === "user" && order.mounts.length > 0) throw refusedMounts("a user's key may mount none");
    const mounts = await checkExtraMounts(order.mounts, settings.hostBasePath ?? null);
    const lease = await this.#acquire(key, mounts, signal);
    try {
      await refuseWithoutAio(lease, signal);
      // A client that has gone away would not know of it.
      signal.throwIfAborted();
      const record = await this.#added(signal, {
        ...{ id: order.id, owner, keyId: caller.keyId, user: key.user, thread, ownsThread: order.thread === null },
        ...{ sandboxId: lease.sandbox.id, generation: lease.generation, leaseId: lease.id },
      });
      if (record === null) {
        // The same request has come twice, maybe to two gateways.
        const other = await this.#known(caller, order, thread);
        if (other === null)
          throw new SandlotError("sandbox_in_use", { sandboxId: order.id, holders: ["another request"] });
        await lease.release();
        return other;
      }
      await this.#refuseOthers(key, record);
      leases.keep(record, lease);
      sweep.soon();
      return record;
    } catch (error) {
      await lease.release();
      throw error;
    }
  }

  /** Where there is no room, records of ended sandboxes make some. */
  async #added(signal: AbortSignal, record: NewProvisioned): Promise<ProvisionedSandbox | null> {
    const { records, sweep } = this.#parts;
    try {
      return await records.add(record);
    } catch (error) {
      if (!isSandlotError(error, "invalid_request")) throw error;
      await sweep.some(signal);
      return records.add(record);
    }
  }

  /** The sandbox that has this id. `null`: none, or one that has ended. */
  async #known(caller: Caller, { id, user }: Order, thread: string): Promise<ProvisionedSandbox | null> {
    const { records, living, leases } = this.#parts;
    const record = await records.find(ownerOf(caller), id);
    if (record === null) return null;
    const summary = await living.one(record);
    if (summary === null) {
      await records.remove(record);
      return null;
    }
    checkBlueprint(caller.blueprints, summary.blueprint);
    if (record.user !== user || record.thread !== thread) {
      const problem = "it is the id of another thread's sandbox; delete that one first, or choose another id";
      throw new SandlotError("invalid_request", { field: "sandbox_id", problem });
    }
    leases.renew(record);
    return record;
  }

  /** `own` is withdrawn when another id has the thread: of two at the same time none stays, and asking again helps. */
  async #refuseOthers({ user, thread }: ThreadKey, own: ProvisionedSandbox | null): Promise<void> {
    const { records, living } = this.#parts;
    const same = (await records.all()).filter((record) => record.user === user && record.thread === thread);
    const [other] = await living.all(same.filter(({ name }) => name !== own?.name));
    if (other === undefined) return;
    if (own !== null) await records.remove(own);
    const { sandboxId, id } = other.record;
    throw new SandlotError("sandbox_in_use", { sandboxId, holders: [`the id ${id}`] });
  }

  /** A sandbox of the thread with other mounts, which no caller holds, is replaced. */
  async #acquire(key: ThreadKey, mounts: Awaited<ReturnType<typeof checkExtraMounts>>, signal: AbortSignal) {
    const { threads, leases, settings } = this.#parts;
    const { blueprint } = settings;
    const order = {
      ...{ purpose: PURPOSE, ttlMs: leases.ttlMs, timeoutMs: CREATE_MS, signal, mounts },
      ...(blueprint === DEFAULT_BLUEPRINT ? {} : { blueprint }),
    };
    try {
      return await threads.acquireAs(key, order);
    } catch (error) {
      const isRefused = isSandlotError(error, "capability_missing") || isSandlotError(error, "mount_refused");
      if (isRefused && mounts.length > 0)
        throw new SandlotError("invalid_request", { field: "extra_mounts", problem: error.message }, { cause: error });
      if (!isSandlotError(error, "blueprint_mismatch")) throw error;
      await threads.destroy(key, { timeoutMs: STOP_MS }, signal);
      return threads.acquireAs(key, order);
    }
  }
}

/** A user's ids are common to all keys of the user; those of a platform or an operator are the key's own. */
function ownerOf({ scope, user, keyId }: Caller): string {
  return scope === "user" ? `user:${user}` : `key:${keyId}`;
}

/** A client waits for the API by itself, but one that never comes is said at once. */
async function refuseWithoutAio(lease: Lease, signal: AbortSignal): Promise<void> {
  try {
    (await lease.connect(AIO_TUNNEL_PORT, { signal })).destroy();
  } catch (error) {
    if (isSandlotError(error, "capability_missing")) throw error;
  }
}

function notFound(id: string): SandlotError {
  const cause = new DeerFlowDetail(`Sandbox '${id}' not found`);
  return new SandlotError("sandbox_not_found", { id: id.slice(0, 100) }, { cause });
}
