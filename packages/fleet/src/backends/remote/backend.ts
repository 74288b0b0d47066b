/**
 * Sandboxes of a provisioner: another Sandlot gateway, or DeerFlow's service.
 *
 *   create   record written ─▶ POST, with an id of this fleet ─▶ AIO answers at the URL
 *   attach   record and credentials agree ─▶ GET for the URL ─▶ AIO
 *   destroy  DELETE, until it is confirmed ─▶ record removed
 *
 * Invariants
 * - Every id begins with this fleet's prefix, and only such ids are listed, asked for or ended (`object-id.ts`).
 * - A provisioner knows no generation and no token. The record in the fleet's home holds them, and without the record
 *   nothing is attached.
 * - 404 is dead. An answer of another kind, or none, is unknown.
 * - What the provisioner decides is not ours: network, limits, image and mounts of its sandboxes. Nothing of it is
 *   declared, and a blueprint that asks for it is refused.
 */

import { join } from "node:path";
import { type EngineRef, SandlotError, SYSTEM_PATH } from "@sandlot/contract";
import type {
  Activity,
  Attachment,
  Backend,
  Capability,
  Created,
  CreateSpec,
  Credentials,
  EngineEvent,
  EngineObject,
  ListOptions,
  Target,
  WorkspaceSpot,
} from "../../backend/backend.ts";
import { BackendCalls } from "../../backend/backend-calls.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import { ActivityReader, AioAttachment, awaitServer, checkServer } from "../../compat/aio/index.ts";
import { ServerAway } from "../../compat/aio/wire/answers.ts";
import { NoAnswer } from "../../compat/aio/wire/wire.ts";
import { homeEngineId } from "../../host/engine-id.ts";
import { machineId } from "../../host/process-table.ts";
import { makeDirectories } from "../../world/make-directories.ts";
import { sleep, within } from "../../world/waiting.ts";
import type { Liveness, World } from "../../world/world.ts";
import { Deaths } from "./deaths.ts";
import { RemoteMarkers } from "./markers.ts";
import { type ObjectId, objectId, parseObjectId, parseRef, prefixOf, refOf, remoteThread } from "./object-id.ts";
import { ProvisionerClient, Refused, type RemoteSandbox, Silent } from "./provisioner-client.ts";
import { RemoteRecords } from "./records.ts";
import { createFailed, lost, missing, NAME, RETRY_AFTER_MS, requireNothing, unreachable } from "./refusals.ts";
import { RemoteWire } from "./remote-wire.ts";
import { provisionerUrl, type RemoteSettings, readKey } from "./settings.ts";
import { noSlots, RemoteWorkspaces } from "./workspaces.ts";

export interface RemoteBackendOptions {
  readonly settings: RemoteSettings;
  readonly world: World;
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

/** Between two requests to confirm an end. */
const CONFIRM_MS = 500;
const WIPE_MS = 120_000;
/**
 * Removes all but the directories that every workspace has, and prints what is left. The thread's own programs, which its
 * home has, are not looked up, and what the thread closed to itself is opened first.
 */
const WIPE =
  `PATH=${SYSTEM_PATH}; export PATH; chmod -R u+rwx /mnt/user-data 2> /dev/null; ` +
  "find /mnt/user-data -mindepth 2 -delete; find /mnt/user-data -mindepth 1 ! -type d -delete; " +
  "find /mnt/user-data -mindepth 2 | head -n 1; find /mnt/user-data ! -type d | head -n 1";

const DEAD_STATUSES: ReadonlySet<string> = new Set(["Succeeded", "Failed"]);
const LIVING_STATUSES: ReadonlySet<string> = new Set(["Running", "Pending"]);

interface Held {
  readonly ref: EngineRef;
  readonly attachment: AioAttachment;
}

/** Rejects with `engine_unavailable` when the provisioner does not answer, or does not take the key. */
export async function openRemoteBackend(options: RemoteBackendOptions): Promise<Backend> {
  const backend = new RemoteBackend(options);
  try {
    await backend.list({ consistent: false }, new AbortController().signal);
    return backend;
  } catch (error) {
    await backend.close();
    throw error;
  }
}

class RemoteBackend implements Backend {
  readonly name = NAME;
  readonly engineId: string;
  readonly capabilities: ReadonlySet<Capability> = new Set();
  readonly workspaces: RemoteWorkspaces;
  readonly markers: RemoteMarkers;
  readonly #settings: RemoteSettings;
  readonly #world: World;
  readonly #url: URL;
  readonly #client: ProvisionerClient;
  readonly #records: RemoteRecords;
  readonly #prefix: string;
  readonly #deaths: Deaths;
  readonly #activity: ActivityReader;
  readonly #held = new Set<Held>();
  readonly #calls = new BackendCalls();

  constructor({ settings, world, environment = process.env }: RemoteBackendOptions) {
    const { home, fleetId, skillsPath, remote } = settings;
    if (skillsPath !== null) throw missing("mounts", "skills");
    this.#settings = settings;
    this.#world = world;
    this.#url = provisionerUrl(remote);
    const root = join(home, fleetId);
    makeDirectories(root, 0o700);
    this.engineId = homeEngineId(NAME, `${machineId()}\0${this.#url.href}`, home);
    this.#prefix = prefixOf(fleetId, this.engineId);
    const key = () => readKey(remote, environment);
    this.#client = new ProvisionerClient({ url: this.#url, key, sandboxHosts: remote.sandboxHosts, world });
    this.#records = new RemoteRecords(root, world);
    this.workspaces = new RemoteWorkspaces(this.#records, (threadKey, spot) => this.#wipe(threadKey, spot));
    this.markers = new RemoteMarkers(this.#records, (id) => parseObjectId(this.#prefix, id) !== null);
    this.#activity = new ActivityReader(world);
    this.#deaths = new Deaths({
      world,
      known: () => this.#made(),
      list: () => this.list({ consistent: false }, this.#calls.ending),
      probe: (ref) => this.probe(ref, this.#calls.ending),
    });
    // Attachments of a sandbox end with it.
    this.#deaths.listen((event) => event.type === "died" && this.#lose(event.ref));
  }

  create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    return this.#calls.create(signal, (bounded) => this.#create(spec, bounded));
  }

  attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    return this.#calls.ask("attach", signal, () => this.#attach(target, signal));
  }

  rebind(_target: Target, _from: Credentials, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("rebind", signal, () => Promise.reject(noSlots()));
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.#calls.ask("probe", signal, () => this.#probe(ref, signal));
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("destroy", signal, () => this.#destroy(ref, signal));
  }

  list({ sandboxId }: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.#calls.ask("list", signal, async () => {
      const listed = await this.#client.list(signal).catch((error: unknown) => Promise.reject(this.#away(error)));
      const own = listed.flatMap(({ id, status }) => {
        const parsed = parseObjectId(this.#prefix, id);
        return parsed === null || (sandboxId ?? parsed.sandboxId) !== parsed.sandboxId ? [] : [{ parsed, status }];
      });
      return Promise.all(own.map(({ parsed, status }) => this.#object(parsed, status)));
    });
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    return this.#deaths.listen(listener);
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.#calls.ask("activity", signal, async () => {
      const { id, sandboxId } = this.#own(ref);
      const found = await this.#find(id, sandboxId, signal);
      if (found === null) throw lost({ sandboxId, generation: this.#own(ref).generation });
      const wire = new RemoteWire(found.url);
      try {
        return await this.#activity.read(id, wire, signal);
      } catch (error) {
        signal.throwIfAborted();
        throw unreachable(sandboxId, error);
      } finally {
        wire.close();
      }
    });
  }

  async close(): Promise<void> {
    this.#calls.end();
    this.#deaths.close();
    await this.#calls.settled();
    await Promise.all([...this.#held].map(({ attachment }) => attachment.close()));
  }

  async #create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { labels, blueprint, marker, token, generation } = spec;
    requireNothing(blueprint);
    if (marker === null) throw noSlots();
    const threadKey = threadKeyOf(marker.user, marker.thread);
    const known = await this.#records.thread(threadKey);
    if (known !== null && known.generation > generation)
      throw new SandlotError("stale_generation", {
        ...{ sandboxId: labels.sandboxId, generation, current: known.generation },
      });
    const { id } = objectId(this.#prefix, labels.sandboxId, generation);
    const { environment } = blueprint;
    const record = { labels, token, markers: [marker], environment };
    await this.#records.keepObject(id, { ...record, isMade: false });
    await this.#records.keepThread(threadKey, { user: marker.user, thread: marker.thread, generation });
    try {
      await this.#ready(await this.#ordered(id, threadKey, signal), signal);
    } catch (error) {
      await this.#unmake(id);
      signal.throwIfAborted();
      throw createFailed(error);
    }
    await this.#records.keepObject(id, { ...record, isMade: true });
    return { ref: refOf(id), place: "home", workspace: known === null ? "new" : "existing" };
  }

  #ordered(id: string, threadKey: string, signal: AbortSignal): Promise<RemoteSandbox> {
    const { user } = this.#settings.remote;
    return this.#client.create({ id, thread: remoteThread(this.#prefix, threadKey), user }, signal);
  }

  /** Resolves when the AIO API answers. */
  async #ready({ url }: RemoteSandbox, signal: AbortSignal): Promise<void> {
    const { readyTimeoutMs } = this.#settings.remote;
    const wire = new RemoteWire(url);
    const late = () => new NoAnswer(`its AIO API did not answer within ${readyTimeoutMs} ms`);
    try {
      await within(this.#world, readyTimeoutMs, signal, late, (bounded) => awaitServer(wire, this.#world, bounded));
    } finally {
      wire.close();
    }
  }

  /** A request without an answer may have taken effect. What cannot be removed now is found in a list later. */
  async #unmake(id: string): Promise<void> {
    try {
      if (await this.#client.remove(id, this.#calls.ending)) await this.#records.forgetObject(id);
    } catch (error) {
      if (!(error instanceof Silent) && !(error instanceof Refused) && !this.#calls.ending.aborted) throw error;
    }
  }

  async #attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    const { sandboxId, generation, token, ref } = target;
    const own = this.#own(ref);
    const found = await this.#find(own.id, sandboxId, signal);
    if (found === null || DEAD_STATUSES.has(found.status)) throw lost(target);
    const record = await this.#records.object(own.id);
    const isCurrent = record?.token === token && own.generation === generation && own.sandboxId === sandboxId;
    if (record === null || !isCurrent)
      throw new SandlotError("stale_generation", { sandboxId, generation, current: null });
    const wire = new RemoteWire(found.url);
    try {
      await checkServer(wire, this.#world, signal);
    } catch (error) {
      wire.close();
      signal.throwIfAborted();
      throw unreachable(sandboxId, error);
    }
    const about = { sandboxId, generation, environment: record.environment };
    // A sandbox that was made for a thread is never bound to another.
    const knowledge = { checkCurrent: async () => {}, liveness: () => this.#probe(ref, this.#calls.ending) };
    const held = { ref, attachment: new AioAttachment(wire, this.#world, about, knowledge) };
    this.#held.add(held);
    void held.attachment.closed.then(() => this.#held.delete(held));
    return held.attachment;
  }

  async #probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    try {
      const found = await this.#client.find(this.#own(ref).id, signal);
      if (found === null || DEAD_STATUSES.has(found.status)) return "dead";
      if (LIVING_STATUSES.has(found.status)) return "alive";
      // DeerFlow's service says `NotFound` also when it could not ask, so its server has a say.
      return found.status === "NotFound" && !(await this.#answers(found.url, signal)) ? "dead" : "unknown";
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof Silent || error instanceof Refused) return "unknown";
      throw error;
    }
  }

  async #answers(url: string, signal: AbortSignal): Promise<boolean> {
    const wire = new RemoteWire(url);
    try {
      await checkServer(wire, this.#world, signal);
      return true;
    } catch (error) {
      signal.throwIfAborted();
      return !(error instanceof NoAnswer) && !(error instanceof ServerAway);
    } finally {
      wire.close();
    }
  }

  async #destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    const { id } = this.#own(ref);
    try {
      while (!(await this.#client.remove(id, signal))) await sleep(this.#world, CONFIRM_MS, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw this.#away(error);
    }
    await this.#records.forgetObject(id);
    this.#activity.forget(id);
    this.#lose(ref);
  }

  /** Makes a sandbox of the thread, removes everything in it, and ends it. */
  async #wipe(threadKey: string, { sandboxId, generation }: WorkspaceSpot): Promise<void> {
    const { id } = objectId(this.#prefix, this.#world.randomHex(10) as WorkspaceSpot["sandboxId"], generation);
    const late = () => new Silent(`the files were not removed within ${WIPE_MS} ms`);
    try {
      await within(this.#world, WIPE_MS, this.#calls.ending, late, async (signal) => {
        const made = await this.#ordered(id, threadKey, signal);
        await this.#ready(made, signal);
        const wire = new RemoteWire(made.url);
        const knowledge = { checkCurrent: async () => {}, liveness: async () => "unknown" as const };
        const attachment = new AioAttachment(wire, this.#world, { sandboxId, generation }, knowledge);
        try {
          const { stdout, stderr, exitCode } = await attachment.sandbox.exec(WIPE, { cwd: "/", signal });
          if (exitCode !== 0 || stdout !== "" || stderr !== "")
            throw new Silent(`it could not remove ${(stdout || stderr).slice(0, 200)}`);
        } finally {
          await attachment.close();
        }
      });
    } catch (error) {
      throw this.#away(error);
    } finally {
      await this.#unmake(id);
    }
  }

  /** What any process of this home has made and not ended. */
  async #made(): Promise<readonly { readonly ref: EngineRef; readonly sandboxId: ObjectId["sandboxId"] }[]> {
    const ids = (await this.#records.allObjectIds()).filter((id) => parseObjectId(this.#prefix, id) !== null);
    const found = await Promise.all(ids.map(async (id) => ({ id, record: await this.#records.object(id) })));
    return found.flatMap(({ id, record }) =>
      record?.isMade === true ? [{ ref: refOf(id), sandboxId: record.labels.sandboxId }] : [],
    );
  }

  async #object(parsed: ObjectId, status: string): Promise<EngineObject> {
    const { id, sandboxId, generation } = parsed;
    const record = await this.#records.object(id);
    const labels = record?.labels ?? {
      ...{ fleet: this.#settings.fleetId, sandboxId, generation, threadKey: null, engine: this.engineId },
      blueprintHash: "" as CreateSpec["labels"]["blueprintHash"],
    };
    const liveness = DEAD_STATUSES.has(status) ? "dead" : LIVING_STATUSES.has(status) ? "alive" : "unknown";
    return { ref: refOf(id), labels, liveness, place: "home" };
  }

  async #find(id: string, sandboxId: string, signal: AbortSignal): Promise<RemoteSandbox | null> {
    try {
      return await this.#client.find(id, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw unreachable(sandboxId, error);
    }
  }

  /** A reference of another fleet, or of another backend, is none of ours. */
  #own(ref: EngineRef): ObjectId {
    const parsed = parseRef(ref);
    if (parsed?.prefix === this.#prefix) return parsed;
    throw new SandlotError("sandbox_not_found", { id: ref.slice(0, 100) });
  }

  #lose(ref: EngineRef): void {
    for (const held of this.#held) if (held.ref === ref) held.attachment.lose();
  }

  #away(error: unknown): unknown {
    if (!(error instanceof Silent) && !(error instanceof Refused)) return error;
    const details = { engine: NAME, problem: error.message, tried: [this.#url.origin], retryAfterMs: RETRY_AFTER_MS };
    return new SandlotError("engine_unavailable", details, { cause: error });
  }
}
