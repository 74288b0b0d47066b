/**
 * What must hold at every effect, whatever is killed or stopped. A violation is reported to main and changes nothing.
 *
 *   use          one sandbox per thread is used, and one thread per sandbox; never an older generation after a newer
 *   read         every write that took effect in the thread's workspace is in it, unless the thread was deleted
 *   create       the store has the intent when the engine gets the request
 *   destroy      the store says `stopping`, and no process with a live session uses it, unless it was forced
 *   rebind       a sandbox is bound once
 *   purge        a caller requested the thread's end
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { CreateSpec, Target, WorkspaceSpot } from "../../../packages/fleet/src/backend/backend.ts";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import { type EngineLedger, nameOf, type SimObject, type Workspace } from "../../simulation/engine/ledger.ts";
import type { Entry } from "../wire.ts";
import type { Announcements } from "./announcements.ts";
import type { AttachmentOf, Peer } from "./peer.ts";
import type { RewindWindow } from "./rewind-window.ts";

/** A process that was stopped between reading and requesting acts on what was true when it read. */
const UNDISTURBED_MS = 3_000;
/** A message that a process sent before it wrote to the store may still be in its socket. */
const SOCKET_LAG_MS = 15;
/** The suffix of an entry's owner when the caller named no thread. */
const ANONYMOUS = "/~";

export class Checks {
  readonly #ledger: EngineLedger;
  readonly #store: Store;
  readonly #announcements: Announcements;
  readonly #attachments: ReadonlyMap<number, AttachmentOf>;
  readonly #violated: (what: string) => void;
  /** The exception of a store that may lose its last commits. */
  readonly window: RewindWindow;
  /** By thread: every token that took effect and was not deleted with its thread. */
  readonly #written = new Map<string, Set<string>>();
  readonly #purged = new Set<string>();
  readonly #newestUsed = new Map<string, number>();
  readonly #boundTo = new Map<SimObject, string>();

  constructor(parts: {
    ledger: EngineLedger;
    store: Store;
    announcements: Announcements;
    attachments: ReadonlyMap<number, AttachmentOf>;
    violated: (what: string) => void;
    window: RewindWindow;
  }) {
    this.window = parts.window;
    this.#ledger = parts.ledger;
    this.#store = parts.store;
    this.#announcements = parts.announcements;
    this.#attachments = parts.attachments;
    this.#violated = parts.violated;
  }

  get purgedTokens(): ReadonlySet<string> {
    return this.#purged;
  }

  /** Returns the used workspace, which must be the thread's. */
  used({ peer, target }: AttachmentOf, object: SimObject, entry: Entry): Workspace {
    const workspace = this.#ledger.workspaceOf(object);
    if (workspace === null) throw new Error(`there is no workspace in ${object.ref}`);
    const by = `${peer.name} in ${object.ref} generation ${target.generation}`;
    // A caller without a thread does not know the fleet's name for it.
    const isAnonymous = entry.owner.endsWith(ANONYMOUS) && workspace.owner.startsWith(entry.owner);
    const owner = isAnonymous ? workspace.owner : entry.owner;
    if (workspace.owner !== owner) this.#violated(`${by} sees the workspace of ${workspace.owner} as that of ${owner}`);
    const isThere = object.place !== "home" || this.#ledger.homes.get(owner) === workspace;
    if (!isThere) this.#violated(`${by} uses a workspace that is no longer the one of ${owner}`);
    this.#usedAlone(object, owner, by);

    const newest = this.#newestUsed.get(owner) ?? 0;
    if (target.generation < newest) this.#violated(`${by} uses ${owner} after generation ${newest} did`);
    this.#newestUsed.set(owner, Math.max(newest, target.generation));
    return workspace;
  }

  #usedAlone(object: SimObject, owner: string, by: string): void {
    object.writers.add(owner);
    if (object.writers.size > 1)
      this.#violated(`two threads in one sandbox: ${[...object.writers].join(", ")} (${by})`);
    for (const other of this.#ledger.objects.values()) {
      if (other === object || !other.alive || !other.writers.has(owner)) continue;
      this.window.suspect({
        kind: "two sandboxes",
        what: `two sandboxes for ${owner}: ${by}, while ${other.ref} generation ${other.generation} is in use`,
        at: performance.now(),
        begunAt: Math.max(object.landedAt, other.landedAt),
      });
    }
  }

  wrote({ owner }: Workspace, token: string): void {
    const written = this.#written.get(owner) ?? new Set();
    this.#written.set(owner, written.add(token));
  }

  read(workspace: Workspace): void {
    const { owner } = workspace;
    const missing = [...(this.#written.get(owner) ?? [])].filter((token) => !workspace.tokens.has(token));
    if (missing.length === 0) return;
    this.#violated(`lost writes: ${owner} has lost ${missing.length}, such as ${missing[0]}`);
    for (const token of missing) this.#written.get(owner)?.delete(token);
  }

  async createAsked(peer: Peer, spec: CreateSpec): Promise<void> {
    const { sandboxId, generation } = spec.labels;
    const at = performance.now();
    const record = await this.#recordOf(sandboxId);
    if (record === undefined || this.#isDisturbed(peer)) return;
    if (record === null)
      this.window.suspect({
        kind: "made without a record",
        what: `${peer.name} makes ${sandboxId} generation ${generation}, which no record knows`,
        ...{ at, begunAt: null },
      });
    else if (record.state === "ready") this.#violated(`${peer.name} makes ${sandboxId} again, which is ready`);
  }

  async destroying(peer: Peer, object: SimObject): Promise<void> {
    const { sandboxId } = object.labels;
    const at = performance.now();
    const record = await this.#recordOf(sandboxId);
    if (record === undefined || !object.alive) return;
    const users = await this.#usersOf(object);
    if (!object.alive) return;
    const what = `${peer.name} destroys ${object.ref} (${sandboxId})`;
    if (record === null)
      this.window.suspect({
        kind: "destroyed without a record",
        what: `${what}, whose record is absent`,
        ...{ at, begunAt: null },
      });
    else if (record.state !== "stopping") this.#violated(`${what}, whose record is ${record.state}`);
    if (users.length > 0 && !this.#announcements.allow("force", [...object.writers], object.landedAt))
      this.#violated(`${what}, stopped as ${record?.reason}, while ${users.join(" and ")} use it`);
  }

  /** Processes that use the object through a hold that is valid, as far as they and the store know. */
  async #usersOf(object: SimObject): Promise<readonly string[]> {
    const using = () =>
      [...this.#attachments.values()].filter(
        (attachment) =>
          attachment.object === object && attachment.used && !attachment.doubted && attachment.peer.pausedAt === null,
      );
    if (using().length === 0) return [];
    const sessions = await this.#store.sessions().catch(() => []);
    const living = new Set<string>(sessions.map(({ instance }) => instance));
    await sleep(SOCKET_LAG_MS);
    return using().flatMap(({ peer }) => (living.has(peer.name) ? [peer.name] : []));
  }

  rebound(peer: Peer, object: SimObject, target: Target): void {
    const marker = this.#ledger.markersOf(target.sandboxId).find(({ generation }) => generation === target.generation);
    if (marker === undefined) {
      this.#violated(`${peer.name} binds ${object.ref} without a marker`);
      return;
    }
    const owner = nameOf(marker);
    const before = this.#boundTo.get(object);
    if (before !== undefined && before !== owner) this.#violated(`${object.ref} is bound to ${before} and to ${owner}`);
    this.#boundTo.set(object, owner);
  }

  purged(peer: Peer, spot: WorkspaceSpot, removed: readonly Workspace[]): void {
    const owner = nameOf(spot);
    for (const { tokens } of removed) {
      for (const token of tokens) {
        this.#purged.add(token);
        this.#written.get(owner)?.delete(token);
      }
    }
    if (removed.length === 0 || spot.thread.startsWith("~")) return;
    if (!this.#announcements.allow("purge", [owner], 0))
      this.#violated(`${peer.name} deletes ${owner}, which nobody asked for`);
  }

  #isDisturbed(peer: Peer): boolean {
    return !peer.isOpen || peer.pausedAt !== null || performance.now() - peer.disturbedAt < UNDISTURBED_MS;
  }

  /** `undefined`: the store is unavailable, so nothing is known. */
  #recordOf(sandboxId: SandboxRecord["sandboxId"]): Promise<SandboxRecord | null | undefined> {
    return this.#store.get(sandboxId).catch(() => undefined);
  }
}
