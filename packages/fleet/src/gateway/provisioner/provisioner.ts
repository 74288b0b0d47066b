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
 * - Every call ends before the client's own time limit (30 s to create, 15 s to remove).
 */

import {
  AIO_TUNNEL_PORT,
  type ExtraMount,
  isSandlotError,
  parseThreadId,
  type SandboxSummary,
  SandlotError,
  type UserId,
} from "@sandlot/contract";
import { DEFAULT_BLUEPRINT } from "../../config/defaults.ts";
import type { Fleet, Lease } from "../../fleet.ts";
import { problemOf } from "../../observe/event-bus.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { DeerFlowDetail } from "../errors.ts";
import { type Caller, checkBlueprint } from "../guards/caller.ts";
import type { ApiKeys } from "../keys/api-keys.ts";
import type { AioLinks } from "../previews/aio-links.ts";
import type { ThreadKey } from "../thread-key.ts";
import type { ThreadUse } from "../thread-use.ts";
import { checkExtraMounts, refusedMounts } from "./extra-mounts.ts";
import { type ProvisionedLeases, PURPOSE } from "./provisioned-leases.ts";
import type { ProvisionedSandbox, ProvisionedSandboxes } from "./provisioned-sandboxes.ts";

export interface ProvisionerParts {
  readonly fleet: Pick<Fleet, "find" | "list" | "events">;
  readonly threads: Pick<ThreadUse, "acquireAs" | "destroy">;
  readonly keys: Pick<ApiKeys, "find">;
  readonly aioLinks: Pick<AioLinks, "endUses">;
  readonly records: ProvisionedSandboxes;
  readonly leases: ProvisionedLeases;
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

/** Below the client's limits, with time left for the response. */
const CREATE_MS = 25_000;
const STOP_MS = 10_000;
/** Records of ended sandboxes that are older than this are removed by the next create. */
const SWEEP_AFTER_MS = 600_000;
const SWEEP_MAX = 10;
/** Ended sandboxes that are remembered, so that a list does not look for each of them again. */
const ENDED_MAX = 10_000;

interface Living {
  readonly record: ProvisionedSandbox;
  readonly summary: SandboxSummary;
}

export class Provisioner {
  readonly #parts: ProvisionerParts;
  readonly #ended = new Set<string>();
  #sweeps = 0;

  constructor(parts: ProvisionerParts) {
    this.#parts = parts;
  }

  create(caller: Caller, order: Order, signal: AbortSignal): Promise<ProvisionedSandbox> {
    const late = () => new SandlotError("acquire_timeout", { stage: "creating", timeoutMs: CREATE_MS });
    return within(this.#parts.world, CREATE_MS, signal, late, (bounded) => this.#create(caller, order, bounded));
  }

  async find(caller: Caller, id: string): Promise<ProvisionedSandbox> {
    const record = await this.#parts.records.find(ownerOf(caller), id);
    const summary = record === null ? null : await this.#living(record);
    if (record === null || summary === null) throw notFound(id);
    checkBlueprint(caller.blueprints, summary.blueprint);
    this.#parts.leases.renew(record);
    return record;
  }

  async list(caller: Caller): Promise<readonly ProvisionedSandbox[]> {
    const { records, leases } = this.#parts;
    const owner = ownerOf(caller);
    const own = await this.#allLiving((await records.all()).filter((record) => record.owner === owner));
    const granted = own.filter(({ summary: { blueprint } }) => caller.blueprints?.includes(blueprint) !== false);
    for (const { record } of granted) leases.renew(record);
    return granted.map(({ record }) => record);
  }

  /** Whether the engine has confirmed the end. An unknown id has ended. */
  async remove(caller: Caller, id: string, signal: AbortSignal): Promise<boolean> {
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
    const { records, leases, settings } = this.#parts;
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
      // First: it makes room where there is none.
      await this.#sweep(signal);
      const record = await records.add({
        ...{ id: order.id, owner, keyId: caller.keyId, user: key.user, thread, ownsThread: order.thread === null },
        ...{ sandboxId: lease.sandbox.id, generation: lease.generation },
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
      return record;
    } catch (error) {
      await lease.release();
      throw error;
    }
  }

  /** The sandbox that has this id. `null`: none, or one that has ended. */
  async #known(caller: Caller, { id, user }: Order, thread: string): Promise<ProvisionedSandbox | null> {
    const { records, leases } = this.#parts;
    const record = await records.find(ownerOf(caller), id);
    if (record === null) return null;
    const summary = await this.#living(record);
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
    const { records } = this.#parts;
    const same = (await records.all()).filter((record) => record.user === user && record.thread === thread);
    const [other] = await this.#allLiving(same.filter(({ name }) => name !== own?.name));
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
      if (isSandlotError(error, "capability_missing") && mounts.length > 0)
        throw new SandlotError("invalid_request", { field: "extra_mounts", problem: error.message }, { cause: error });
      if (!isSandlotError(error, "blueprint_mismatch")) throw error;
      await threads.destroy(key, { timeoutMs: STOP_MS }, signal);
      return threads.acquireAs(key, order);
    }
  }

  /** The record's sandbox; `null` when it has certainly ended, or its key is gone. */
  async #living(record: ProvisionedSandbox): Promise<SandboxSummary | null> {
    const { fleet, keys } = this.#parts;
    const { user, thread } = record;
    const summary = await fleet.find({ user, thread }, { certain: true });
    return isOf(record, summary) && (await keys.find(record.keyId)) !== null ? summary : null;
  }

  async #allLiving(records: readonly ProvisionedSandbox[]): Promise<readonly Living[]> {
    if (records.length === 0) return [];
    const { fleet, keys } = this.#parts;
    const present = new Map((await fleet.list()).map((summary) => [summary.sandboxId as string, summary]));
    const here: Living[] = [];
    for (const record of records) {
      const summary = present.get(record.sandboxId) ?? (await this.#unlisted(record));
      if (isOf(record, summary)) here.push({ record, summary });
    }
    const valid = await Promise.all(here.map(async ({ record }) => (await keys.find(record.keyId)) !== null));
    return here.filter((_, index) => valid[index]);
  }

  /** A sandbox that has ended stays so: each is looked for once, because a list may be asked for often. */
  async #unlisted(record: ProvisionedSandbox): Promise<SandboxSummary | null> {
    if (this.#ended.has(record.nonce)) return null;
    const { user, thread } = record;
    const summary = await this.#parts.fleet.find({ user, thread }, { certain: true });
    if (isOf(record, summary)) return summary;
    if (this.#ended.size >= ENDED_MAX) this.#ended.clear();
    this.#ended.add(record.nonce);
    return null;
  }

  /**
   * Removes some records of ended sandboxes; files of a thread that an id owns go with it. What cannot be removed now, as
   * the engine's records recover or the thread is in use again, stays for a later sweep, and an event says so. One such
   * record keeps none of the others: the next sweeps begin with others, too.
   */
  async #sweep(signal: AbortSignal): Promise<void> {
    const { records, world, fleet, keys } = this.#parts;
    const old = (await records.all()).filter(({ createdAt }) => createdAt < world.wallMs() - SWEEP_AFTER_MS);
    if (old.length === 0) return;
    const present = new Map<string, SandboxSummary>((await fleet.list()).map((one) => [one.sandboxId, one]));
    const isLiving = await Promise.all(
      old.map(async (one) => isOf(one, present.get(one.sandboxId) ?? null) && (await keys.find(one.keyId)) !== null),
    );
    const others = old.filter((_, index) => isLiving[index] === false);
    const first = this.#sweeps++ % Math.max(1, Math.ceil(others.length / SWEEP_MAX));
    for (const record of others.slice(first * SWEEP_MAX, (first + 1) * SWEEP_MAX)) {
      try {
        await this.#sweepOne(record, signal);
      } catch (error) {
        if (!isSandlotError(error)) throw error;
        fleet.events.report("provisioned records", `${record.user}/${record.thread} stays: ${problemOf(error)}`);
      }
    }
  }

  async #sweepOne(record: ProvisionedSandbox, signal: AbortSignal): Promise<void> {
    const { records, threads } = this.#parts;
    if ((await this.#living(record)) !== null) return;
    const { user, thread, ownsThread } = record;
    if (ownsThread) await threads.destroy({ user, thread }, { purge: true, timeoutMs: STOP_MS }, signal);
    await records.remove(record);
  }
}

/** A user's ids are common to all keys of the user; those of a platform or an operator are the key's own. */
function ownerOf({ scope, user, keyId }: Caller): string {
  return scope === "user" ? `user:${user}` : `key:${keyId}`;
}

function isOf({ sandboxId }: ProvisionedSandbox, summary: SandboxSummary | null): summary is SandboxSummary {
  return summary?.sandboxId === sandboxId && (summary.state === "leased" || summary.state === "parked");
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
