/**
 * Destroying on request (rules 10 and 11): refused while somebody holds the sandbox unless forced, answered in bounded
 * time whatever the engine does, and with `purge` the workspace goes while nobody can acquire the thread.
 */

import {
  type Epoch,
  parseThreadId,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import type { Settings } from "../config/settings.ts";
import type { DestroyOptions, DestroyOutcome, ThreadKeyInput } from "../fleet.ts";
import type { Peers } from "../housekeeping/peers.ts";
import type { Membership } from "../membership/membership.ts";
import { throwIfRecovering } from "../opening/opener.ts";
import { blueprintNamed, parseDelay, parseUser } from "../opening/wish.ts";
import type { Changes } from "../store/changes.ts";
import type { SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import type { Retirement } from "./retirement.ts";

export interface DestroyerParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly changes: Changes;
  readonly membership: Membership;
  readonly backend: Backend;
  readonly retirement: Retirement;
  readonly peers: Peers;
}

type Key = { readonly user: UserId; readonly thread: ThreadId };

/** What the caller is told when time is up. */
class StillStopping extends Error {}

export class Destroyer {
  readonly #parts: DestroyerParts;

  constructor(parts: DestroyerParts) {
    this.#parts = parts;
  }

  async destroy(input: ThreadKeyInput, options: DestroyOptions = {}): Promise<DestroyOutcome> {
    const key = { user: parseUser(input.user), thread: parseThreadId(input.thread) };
    return this.#bounded(options, (signal) => this.#destroy(key, options, signal));
  }

  /** One that was bound meanwhile is somebody's, and stays. */
  destroyBlank(sandboxId: SandboxId, options: DestroyOptions = {}): Promise<DestroyOutcome> {
    return this.#bounded(options, (signal) => this.#destroyBlank(sandboxId, signal));
  }

  /** Answered in time, whatever the engine does. */
  async #bounded(options: DestroyOptions, work: (signal: AbortSignal) => Promise<DestroyOutcome>) {
    const { settings, world, changes } = this.#parts;
    const timeoutMs = parseDelay("timeoutMs", options.timeoutMs ?? settings.stopTimeoutMs);
    const late = () => new StillStopping();
    try {
      return await within(world, timeoutMs, options.signal, late, (signal) => changes.listening(() => work(signal)));
    } catch (error) {
      if (error instanceof StillStopping) return "stopping";
      throw error;
    }
  }

  async #destroyBlank(sandboxId: SandboxId, signal: AbortSignal): Promise<DestroyOutcome> {
    const { store, changes, membership, retirement } = this.#parts;
    let ending = false;
    for (let rounds = 0; ; rounds += 1) {
      signal.throwIfAborted();
      await membership.validate();
      const count = changes.count();
      const record = await store.get(sandboxId);
      if (record === null) return ending ? "stopped" : "absent";
      if (record.thread !== null) throw inUse(record);
      if (record.state === "ready") ending ||= (await retirement.stopUnheld(record, "destroyed")).kind === "stopping";
      else {
        ending ||= record.state === "stopping";
        if (await retirement.help(record, signal)) changes.hint();
      }
      await changes.after(count, signal, rounds);
    }
  }

  async #destroy(key: Key, options: DestroyOptions, signal: AbortSignal): Promise<DestroyOutcome> {
    const { store, changes, membership, retirement, settings } = this.#parts;
    let purge = options.purge === true;
    /** What this call ends. A sandbox that the thread is given afterwards is none of its business. */
    let ending: SandboxId | null = null;
    for (let rounds = 0; ; rounds += 1) {
      signal.throwIfAborted();
      await membership.validate();
      const count = changes.count();
      const record = await store.find(key.user, key.thread);
      if (ending !== null && !purge && record?.sandboxId !== ending) return "stopped";
      if (record === null) {
        // A store that was lost does not know yet what exists.
        const { epoch, recovering } = membership;
        throwIfRecovering({ kind: recovering ? "recovering" : "", epoch: epoch ?? "" }, settings.sessionLifetimeMs);
        if (!purge) return "absent";
        ending = await this.#claimForPurge(key, epoch, signal);
        purge = ending === null;
      } else if (record.state === "ready") {
        if (await this.#stop(record, options)) {
          ending = record.sandboxId;
          purge = false;
        }
      } else {
        if (record.state === "stopping" && purge) purge = !(await this.#addPurge(record));
        if (record.state === "stopping") ending = record.sandboxId;
        if (await retirement.help(record, signal)) changes.hint();
      }
      await changes.after(count, signal, rounds);
    }
  }

  /** False when the record changed meanwhile. */
  async #stop(record: SandboxRecord, { force, purge }: DestroyOptions): Promise<boolean> {
    const { retirement, peers, changes } = this.#parts;
    const { sandboxId, generation, revision } = record;
    const mode = force === true ? ({ kind: "force" } as const) : ({ kind: "unheld", revision } as const);
    const answer = await retirement.stop({ sandboxId, generation, reason: "destroyed", purge: purge === true, mode });
    if (answer.kind === "held") {
      // Who was killed a moment ago holds nothing, and nobody may have looked since.
      if (!(await peers.buryTheDead())) throw inUse(answer.record);
      changes.hint();
    }
    return answer.kind === "stopping";
  }

  /** It is ending anyway, for another reason: the workspace is to go too. */
  async #addPurge({ sandboxId, generation }: SandboxRecord): Promise<boolean> {
    const { retirement } = this.#parts;
    const answer = await retirement.stop({
      sandboxId,
      generation,
      reason: "destroyed",
      purge: true,
      mode: { kind: "force" },
    });
    return answer.kind === "lost" && answer.record?.purge === true;
  }

  /** No sandbox, but perhaps a workspace: claim the thread, so that nobody can acquire it while the workspace goes. */
  async #claimForPurge(key: Key, epoch: Epoch | null, signal: AbortSignal): Promise<SandboxId | null> {
    const { store, world, backend, retirement, settings, membership } = this.#parts;
    const { name: blueprint, hash: blueprintHash } = blueprintNamed(settings, "default");
    const generation = await store.nextGeneration();
    signal.throwIfAborted();
    const record = await store.condemn({
      ...{ key, blueprint, blueprintHash, purge: true, ref: null, place: "home", generation },
      ...(epoch === null ? {} : { epoch }),
      sandboxId: world.randomHex(10) as SandboxId,
      token: world.randomHex(24) as Token,
      backend: backend.name,
      actor: membership.instance,
    });
    if (record !== null) void retirement.drive(record);
    return record?.sandboxId ?? null;
  }
}

function inUse({ sandboxId, holders, leases }: SandboxRecord): SandlotError {
  return new SandlotError("sandbox_in_use", { sandboxId, holders: [...Object.keys(holders), ...Object.keys(leases)] });
}
