/**
 * A claim for each thread, for clusters without shared volumes. Only the thread's pod mounts it, so there are no slots, no
 * blanks and no files without a sandbox.
 *
 *   sandlot-ws-<threadKey>   annotations `sandlot.dev/generation` and `sandlot.dev/sandbox`: its last user, the fence
 *
 * Invariants
 * - The fence is raised by a patch of exactly the version that was read, right before a pod may run. Of two that raise it,
 *   one is refused, reads again, and sees whether it is stale.
 * - Raising the fence never makes a claim. One without the annotation was made by a gateway that came too late, or by one
 *   that died before its pod could run: it is empty, and a sweep removes it.
 * - A purge deletes exactly the version that was read. A claim that is being deleted is gone: what follows waits for it.
 * - A lost answer is settled by reading again: the annotation names generation and sandbox.
 */

import {
  type FleetId,
  type Generation,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type ThreadKey,
  type UserId,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import type { Place, WorkspaceSight, WorkspaceSpot } from "../../../backend/backend.ts";
import { threadKeyOf } from "../../../backend/labels.ts";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { type Claim, type ClaimApi, claimName } from "./claim-api.ts";
import type { Leftover, PodSpec, PodVolume, PodWorkspaces } from "./pod-workspaces.ts";

const GENERATION = "sandlot.dev/generation";
const SANDBOX = "sandlot.dev/sandbox";
const FLEET = "sandlot.dev/fleet";
const THREAD_KEY = "sandlot.dev/thread";
const ROLE = "sandlot.dev/role";

/** A patch loses only against another user of the same thread. */
const TRIES_MAX = 5;
/** A claim goes within seconds when no pod uses it. */
const GONE_POLL_MS = 250;
const GONE_TIMEOUT_MS = 30_000;
/** A gateway makes a claim and a pod within minutes, or not at all. */
const UNUSED_MAX_AGE_MS = 3_600_000;

export interface ClaimOptions {
  readonly api: ClaimApi;
  readonly fleet: FleetId;
  readonly world: World;
  readonly goneTimeoutMs?: number;
}

interface Use {
  readonly generation: Generation;
  readonly sandboxId: SandboxId;
}

export class ClaimWorkspaces implements PodWorkspaces {
  readonly hasLateBinding = false;
  readonly files = null;
  readonly #options: ClaimOptions;

  constructor(options: ClaimOptions) {
    this.#options = options;
  }

  async prepare({ marker }: PodSpec): Promise<PodVolume> {
    if (marker === null)
      throw new SandlotError("capability_missing", {
        ...{ backend: "kubernetes", capability: "late-binding" },
        neededBy: "a blank on a claim for each thread",
      });
    const thread = threadKeyOf(marker.user, marker.thread);
    const claim = await this.#present(thread);
    if (claim === null) await this.#make(thread);
    else checkFence(claim, marker);
    return { place: "home", claimName: claimName(thread), subPath: null, mountPath: WORKSPACE_ROOT };
  }

  async fence({ marker }: PodSpec): Promise<"existing" | "new" | "none"> {
    if (marker === null) return "none";
    const thread = threadKeyOf(marker.user, marker.thread);
    let isNew = false;
    for (let tries = 1; tries <= TRIES_MAX; tries++) {
      const claim = await this.#ours(claimName(thread));
      // Another generation has purged the thread since `prepare`.
      if (claim === null || claim.isBeingDeleted) throw stale(marker, null);
      checkFence(claim, marker);
      const last = lastUse(claim);
      if (last?.generation === marker.generation) return isNew ? "new" : "existing";
      isNew = last === null;
      const outcome = await this.#settled(() => this.#options.api.annotate(claim, annotationsOf(marker)));
      if (outcome === "done") return isNew ? "new" : "existing";
    }
    throw this.#unavailable(`the claim of ${thread} changed ${TRIES_MAX} times while its fence was raised`);
  }

  /** Nothing has to leave a claim: the next pod mounts the same. */
  async release(_place: Place): Promise<"dropped"> {
    return "dropped";
  }

  async isOccupied(_place: Place): Promise<boolean> {
    return false;
  }

  arrival(): null {
    return null;
  }

  async latestGeneration(): Promise<number> {
    let latest = 0;
    for await (const claim of this.#options.api.list()) latest = Math.max(latest, lastUse(claim)?.generation ?? 0);
    return latest;
  }

  async look(spot: WorkspaceSpot): Promise<WorkspaceSight> {
    const claim = await this.#options.api.get(claimName(keyOf(spot)));
    const last = claim === null || claim.isBeingDeleted ? null : lastUse(claim);
    return { home: last !== null, slot: false, stale: last !== null && isStale(last, spot) };
  }

  moveIn(spot: WorkspaceSpot): Promise<void> {
    return Promise.reject(noSlots(spot));
  }

  makeIn(spot: WorkspaceSpot): Promise<void> {
    return Promise.reject(noSlots(spot));
  }

  async moveHome({ place }: WorkspaceSpot): Promise<void> {
    throw new SandlotError("file_not_found", { path: place });
  }

  async quarantine(): Promise<void> {}

  async purge(spot: WorkspaceSpot): Promise<void> {
    const name = claimName(keyOf(spot));
    for (let tries = 1; tries <= TRIES_MAX; tries++) {
      const claim = await this.#ours(name);
      if (claim === null) return;
      if (!claim.isBeingDeleted) {
        checkFence(claim, spot);
        if ((await this.#settled(() => this.#options.api.remove(claim))) === "conflict") continue;
      }
      return this.#waitUntilGone(name, claim.uid);
    }
    throw this.#unavailable(`the claim ${name} changed ${TRIES_MAX} times while it was deleted`);
  }

  async sweep(isKnown: (leftover: Leftover) => Promise<boolean>): Promise<void> {
    const before = this.#options.world.wallMs() - UNUSED_MAX_AGE_MS;
    for await (const claim of this.#options.api.list()) {
      if (lastUse(claim) !== null || claim.isBeingDeleted || claim.createdAt > before) continue;
      const threadKey = (claim.labels[THREAD_KEY] ?? null) as ThreadKey | null;
      if (threadKey === null || claim.name !== claimName(threadKey)) continue;
      if (await isKnown({ sandboxId: null, generation: null, threadKey })) continue;
      // This version only: a fence that is raised meanwhile makes it another one.
      await this.#options.api.remove(claim);
    }
  }

  async close(): Promise<void> {}

  /** The thread's claim. One that is being deleted belongs to the past, and blocks the name for a while. */
  async #present(thread: ThreadKey): Promise<Claim | null> {
    const name = claimName(thread);
    const claim = await this.#ours(name);
    if (claim === null || !claim.isBeingDeleted) return claim;
    await this.#waitUntilGone(name, claim.uid);
    return this.#ours(name);
  }

  async #make(thread: ThreadKey): Promise<void> {
    const { api, fleet } = this.#options;
    const labels = { [FLEET]: fleet, [THREAD_KEY]: thread, [ROLE]: "workspace" };
    const made = await api.create({ name: claimName(thread), labels, annotations: {} });
    if (made === "exists") await this.#ours(claimName(thread));
  }

  /** A claim of this fleet. One of the same name that another has made is refused. */
  async #ours(name: string): Promise<Claim | null> {
    const { api, fleet } = this.#options;
    const claim = await api.get(name);
    if (claim === null || claim.labels[FLEET] === fleet) return claim;
    const problem = `a claim ${name} is there, and belongs to something else`;
    throw new SandlotError("create_failed", { backend: "kubernetes", problem });
  }

  async #waitUntilGone(name: string, uid: string): Promise<void> {
    const { api, world, goneTimeoutMs = GONE_TIMEOUT_MS } = this.#options;
    const deadline = world.monotonicMs() + goneTimeoutMs;
    for (;;) {
      const claim = await api.get(name);
      if (claim === null || claim.uid !== uid) return;
      if (world.monotonicMs() >= deadline) throw this.#unavailable(`the claim ${name} is still in use by a pod`);
      await sleep(world, GONE_POLL_MS);
    }
  }

  /** An answer that was lost is settled by the next read. */
  async #settled(call: () => Promise<"done" | "conflict" | "absent">): Promise<"done" | "conflict" | "absent"> {
    try {
      return await call();
    } catch (error) {
      if (error instanceof SandlotError && error.retryable) return "conflict";
      throw error;
    }
  }

  #unavailable(problem: string): SandlotError {
    return new SandlotError("engine_unavailable", { engine: "workspaces", problem, tried: [], retryAfterMs: 1_000 });
  }
}

function keyOf({ user, thread }: { readonly user: UserId; readonly thread: ThreadId }): ThreadKey {
  return threadKeyOf(user, thread);
}

function annotationsOf({ generation, sandboxId }: Use): Record<string, string> {
  return { [GENERATION]: String(generation), [SANDBOX]: sandboxId };
}

/** `null` for a claim that no pod has used. */
function lastUse({ annotations }: Claim): Use | null {
  const text = annotations[GENERATION];
  if (text === undefined || !/^\d{1,16}$/.test(text)) return null;
  return { generation: Number(text) as Generation, sandboxId: (annotations[SANDBOX] ?? "") as SandboxId };
}

function isStale(last: Use, { generation, sandboxId }: Use): boolean {
  return last.generation > generation || (last.generation === generation && last.sandboxId !== sandboxId);
}

function checkFence(claim: Claim, use: Use): void {
  const last = lastUse(claim);
  if (last !== null && isStale(last, use)) throw stale(use, last.generation);
}

function stale({ sandboxId, generation }: Use, current: Generation | null): SandlotError {
  return new SandlotError("stale_generation", { sandboxId, generation, current });
}

function noSlots({ place }: WorkspaceSpot): SandlotError {
  return new SandlotError("file_not_found", { path: place });
}
