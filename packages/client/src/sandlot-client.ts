/**
 * The client of a gateway, for Node and browsers.
 *
 *   const client = new SandlotClient({ url, apiKey });
 *   await using lease = await client.acquire({ thread: "t1" });
 *   const result = await lease.sandbox.exec("ls");
 */

import {
  type AioUrl,
  type ApiKeyInfo,
  type AuditReply,
  aioRevokedSchema,
  aioUrlSchema,
  apiKeyInfoSchema,
  auditReplySchema,
  type BranchReply,
  branchReplySchema,
  type DestroyReply,
  destroyReplySchema,
  type ExplanationReply,
  explanationSchema,
  type FleetEvent,
  isSandlotError,
  type KeyRequest,
  keyListSchema,
  LEASE_TTL_DEFAULT_MS,
  type LeaseSeed,
  type NewApiKey,
  newKeySchema,
  type PoolReply,
  type PortLink,
  poolReplySchema,
  portLinkSchema,
  refuseUnknownOptions,
  type SandboxSummary,
  sandboxListSchema,
  type ThreadSummary,
  threadListSchema,
  threadSummarySchema,
  type UploadedFile,
  type UploadReply,
  uploadListSchema,
  uploadReplySchema,
} from "@sandlot/contract";
import { type Archive, ClientCheckpoints } from "./checkpoints.ts";
import { ClientLease } from "./lease.ts";
import { SHOWN } from "./shown.ts";
import { ClientTimeline } from "./timeline.ts";
import { around, pause, randomId, within } from "./wire/clock.ts";
import { errorOfEvent, isBreak } from "./wire/errors.ts";
import { serverEvents } from "./wire/events.ts";
import { leaseReply } from "./wire/plain-replies.ts";
import { type Query, Transport, type TransportOptions } from "./wire/transport.ts";

export type SandlotClientOptions = TransportOptions;

export interface ClientAcquireRequest {
  /** The thread's user. Another than the client's own needs a platform's or an operator's key, else `forbidden`. */
  readonly user?: string;
  /** Absent: a temporary sandbox, removed with the lease, including its files. */
  readonly thread?: string;
  readonly blueprint?: string;
  /**
   * The files of a new thread: a checkpoint or the present of another thread of the same user, a tar archive (plain or
   * gzip), or, for operators, a directory of the gateway's host. A thread that has files already is `thread_exists`.
   */
  readonly from?: ClientSeed;
  /** The purpose, in a word or two. */
  readonly purpose?: string;
  /** How long the lease lives after its last renewal. It is renewed automatically. Default a minute. */
  readonly ttlMs?: number;
  /** How long to wait. Default: the gateway's limit. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

export type ClientSeed = LeaseSeed | { readonly archive: Archive };

export interface EventOptions {
  readonly signal?: AbortSignal;
  readonly onPartial?: (instances: readonly string[]) => void;
}

const ACQUIRE_OPTIONS = ["user", "thread", "blueprint", "from", "purpose", "ttlMs", "timeoutMs", "signal"] as const;

export class SandlotClient {
  /** Earlier states of threads. */
  readonly checkpoints: ClientCheckpoints;
  /** What happened to threads. */
  readonly timeline: ClientTimeline;
  readonly #transport: Transport;
  readonly #options: TransportOptions;

  constructor(options: SandlotClientOptions) {
    this.#options = options;
    this.#transport = new Transport(options);
    this.timeline = new ClientTimeline(this.#transport);
    this.checkpoints = new ClientCheckpoints(this.#transport, (user) => this.actingFor(user).checkpoints);
  }

  /** What `console.log` shows. The key is not in it. */
  [SHOWN](): string {
    const { url, user } = this.#transport;
    return `SandlotClient { url: '${url}'${user === null ? "" : `, user: '${user}'`} }`;
  }

  /** The same gateway and key, acting for another user: for a platform's or an operator's key. */
  actingFor(user: string): SandlotClient {
    return new SandlotClient({ ...this.#options, user });
  }

  async acquire(request: ClientAcquireRequest = {}): Promise<ClientLease> {
    refuseUnknownOptions("acquire", request, ACQUIRE_OPTIONS);
    const { user, blueprint, from, purpose = "client", ttlMs = LEASE_TTL_DEFAULT_MS, timeoutMs, signal } = request;
    if (user !== undefined && user !== this.#options.user) {
      const { user: _, ...rest } = request;
      return this.actingFor(user).acquire(rest);
    }
    const isOwn = request.thread === undefined;
    const thread = request.thread ?? `own-${randomId()}`;
    const archive = from !== undefined && "archive" in from ? from.archive : null;
    const seed = from === undefined || "archive" in from ? {} : { from };
    const json = { purpose, ttlMs, ...(blueprint === undefined ? {} : { blueprint }), ...seed };
    const path = `/v1/threads/${encodeURIComponent(thread)}/leases`;
    const reply = await within(timeoutMs, signal, async (until) => {
      if (archive !== null) await this.checkpoints.seed(thread, archive, until === undefined ? {} : { signal: until });
      return this.#transport.json(leaseReply, { method: "POST", path, json, signal: until });
    });
    const onReleased = isOwn ? () => this.deleteThread(thread, { force: true }) : null;
    return new ClientLease({ transport: this.#transport, thread, purpose, ttlMs, reply, onReleased });
  }

  /** Ends the thread's sandbox and removes its workspace. */
  deleteThread(thread: string, options: { readonly force?: boolean } = {}): Promise<DestroyReply> {
    const path = `/v1/threads/${encodeURIComponent(thread)}`;
    const query = { force: options.force ?? false };
    return this.#transport.json(destroyReplySchema, { method: "DELETE", path, query, repeatable: true });
  }

  /** Ends the thread's sandbox and keeps its files. */
  stopThread(thread: string, options: { readonly force?: boolean } = {}): Promise<DestroyReply> {
    const path = `/v1/threads/${encodeURIComponent(thread)}/stop`;
    const query = { force: options.force ?? false };
    return this.#transport.json(destroyReplySchema, { method: "POST", path, query, repeatable: true });
  }

  /**
   * Empties the thread's home: installed programs, caches, dotfiles. Ends its sandbox, and keeps the workspace.
   * `sandbox_in_use` while others hold it, unless forced.
   */
  resetHome(thread: string, options: { readonly force?: boolean } = {}): Promise<DestroyReply> {
    const path = `/v1/threads/${encodeURIComponent(thread)}/home/reset`;
    const query = { force: options.force ?? false };
    return this.#transport.json(destroyReplySchema, { method: "POST", path, query, repeatable: true });
  }

  /** The user's threads, with and without a sandbox; all users' for an operator that acts for no user. */
  async listThreads(): Promise<readonly ThreadSummary[]> {
    const all: ThreadSummary[] = [];
    let after: string | null = null;
    do {
      const query: Query = after === null ? {} : { after };
      const call = { method: "GET", path: "/v1/threads", query, repeatable: true } as const;
      const { threads, next } = await this.#transport.json(threadListSchema, call);
      all.push(...threads);
      after = next;
    } while (after !== null);
    return all;
  }

  /** `null` when the thread has neither a sandbox nor files. Creates nothing. */
  async findThread(thread: string): Promise<ThreadSummary | null> {
    const call = { method: "GET", path: `/v1/threads/${encodeURIComponent(thread)}`, repeatable: true } as const;
    try {
      return await this.#transport.json(threadSummarySchema, call);
    } catch (error) {
      if (isSandlotError(error, "thread_not_found")) return null;
      throw error;
    }
  }

  /** Why the thread's sandbox is alive, or why its last one was stopped. */
  explainThread(thread: string): Promise<ExplanationReply> {
    const path = `/v1/threads/${encodeURIComponent(thread)}/explain`;
    return this.#transport.json(explanationSchema, { method: "GET", path, repeatable: true });
  }

  /** A new thread with the files of a checkpoint, or with those of now. */
  branchThread(
    thread: string,
    to: string,
    options: { readonly checkpoint?: string; readonly requestId?: string; readonly signal?: AbortSignal } = {},
  ): Promise<BranchReply> {
    const { signal, ...what } = options;
    const path = `/v1/threads/${encodeURIComponent(thread)}/branch`;
    return this.#transport.json(branchReplySchema, { method: "POST", path, json: { to, ...what }, signal });
  }

  uploadFiles(
    thread: string,
    files: readonly { readonly name: string; readonly content: Blob | Uint8Array | string }[],
    options: { readonly convert?: boolean; readonly signal?: AbortSignal } = {},
  ): Promise<UploadReply> {
    const body = new FormData();
    for (const { name, content } of files)
      body.append(
        "files",
        content instanceof Blob ? content : new Blob([content as Uint8Array<ArrayBuffer> | string]),
        name,
      );
    const path = `/v1/threads/${encodeURIComponent(thread)}/uploads`;
    const query = { convert: options.convert ?? false };
    return this.#transport.json(uploadReplySchema, { method: "POST", path, query, body, signal: options.signal });
  }

  async listUploads(thread: string): Promise<readonly UploadedFile[]> {
    const path = `/v1/threads/${encodeURIComponent(thread)}/uploads`;
    return (await this.#transport.json(uploadListSchema, { method: "GET", path, repeatable: true })).files;
  }

  /** A link to a port of the thread's sandbox. `frame`: for a frame in a page of the gateway itself. */
  linkPort(
    thread: string,
    port: number,
    options: { readonly ttlMs?: number; readonly frame?: boolean } = {},
  ): Promise<PortLink> {
    const path = `/v1/threads/${encodeURIComponent(thread)}/ports/${port}/links`;
    return this.#transport.json(portLinkSchema, { method: "POST", path, json: options, repeatable: true });
  }

  /**
   * A secret base URL of the AIO API of the thread's sandbox, for clients that send no key, such as DeerFlow's. It
   * gives access to the sandbox until it expires or is revoked.
   */
  createAioUrl(thread: string, options: { readonly ttlMs?: number } = {}): Promise<AioUrl> {
    const path = `/v1/threads/${encodeURIComponent(thread)}/aio`;
    return this.#transport.json(aioUrlSchema, { method: "POST", path, json: options });
  }

  /** Revokes one AIO URL of the thread, or all. Returns how many there were. */
  async revokeAioUrls(thread: string, linkId?: string): Promise<number> {
    const one = linkId === undefined ? "" : `/${encodeURIComponent(linkId)}`;
    const path = `/v1/threads/${encodeURIComponent(thread)}/aio${one}`;
    const call = { method: "DELETE", path, repeatable: true } as const;
    return (await this.#transport.json(aioRevokedSchema, call)).revoked;
  }

  /** The user's sandboxes; all for an operator that acts for no user. */
  async listSandboxes(): Promise<readonly SandboxSummary[]> {
    const call = { method: "GET", path: "/v1/sandboxes", repeatable: true } as const;
    return (await this.#transport.json(sandboxListSchema, call)).sandboxes;
  }

  /** Ends a sandbox by its id; its workspace stays. */
  destroySandbox(sandboxId: string, options: { readonly force?: boolean } = {}): Promise<DestroyReply> {
    const path = `/v1/sandboxes/${encodeURIComponent(sandboxId)}`;
    const query = { force: options.force ?? false };
    return this.#transport.json(destroyReplySchema, { method: "DELETE", path, query, repeatable: true });
  }

  /** Why it is alive, why it was stopped, which leases hold it. A prefix of the id is enough. */
  explain(sandboxId: string): Promise<ExplanationReply> {
    const path = `/v1/sandboxes/${encodeURIComponent(sandboxId)}/explain`;
    return this.#transport.json(explanationSchema, { method: "GET", path, repeatable: true });
  }

  /** Says that nothing of a sandbox runs any more, where its engine cannot tell. For operators. */
  async confirmDead(sandboxId: string): Promise<void> {
    const path = `/v1/sandboxes/${encodeURIComponent(sandboxId)}/confirm-dead`;
    await this.#transport.done({ method: "POST", path, repeatable: true });
  }

  /** Which blanks are kept ready and why, and how often a thread got one. For operators. */
  pool(): Promise<PoolReply> {
    return this.#transport.json(poolReplySchema, { method: "GET", path: "/v1/pool", repeatable: true });
  }

  /** Compares engine and store, and returns the audit log. For operators. */
  audit(): Promise<AuditReply> {
    return this.#transport.json(auditReplySchema, { method: "GET", path: "/v1/audit", repeatable: true });
  }

  /** The key of this client: its scope, user and blueprints. */
  key(): Promise<ApiKeyInfo> {
    return this.#transport.json(apiKeyInfoSchema, { method: "GET", path: "/v1/key", repeatable: true });
  }

  /** Keys of the gateway, never their values. For operators. */
  async listKeys(): Promise<readonly ApiKeyInfo[]> {
    return (await this.#transport.json(keyListSchema, { method: "GET", path: "/v1/keys", repeatable: true })).keys;
  }

  /** Creates a key; only this response contains it. For operators. */
  createKey(request: KeyRequest): Promise<NewApiKey> {
    return this.#transport.json(newKeySchema, { method: "POST", path: "/v1/keys", json: request });
  }

  /** Revokes a key. `false` when there is none with this id. For operators. */
  async revokeKey(id: string): Promise<boolean> {
    try {
      await this.#transport.done({ method: "DELETE", path: `/v1/keys/${encodeURIComponent(id)}` });
      return true;
    } catch (error) {
      if (isSandlotError(error, "key_not_found")) return false;
      throw error;
    }
  }

  /**
   * What happens to the user's sandboxes, or in the whole fleet for an operator. Goes on after a break; `null` where some
   * were missed. A gateway of a later version sends types that `FleetEvent` does not list, too: they come as they are.
   *
   * `onPartial` is called with the instances whose events do not come from then on; without it, that is a `null`.
   */
  async *events({ signal, onPartial }: EventOptions = {}): AsyncGenerator<FleetEvent | null> {
    let last: string | null = null;
    let begun = false;
    for (let silent = 0; ; silent += 1) {
      const headers: Record<string, string> = last === null ? {} : { "last-event-id": last };
      const call = { method: "GET", path: "/v1/events", headers, signal, repeatable: true } as const;
      try {
        const response = await this.#transport.stream(call);
        begun = true;
        for await (const { event, id, data } of serverEvents(response, this.#transport.url)) {
          silent = 0;
          last = id ?? last;
          if (event === "error") throw errorOfEvent(data, this.#transport.url);
          if (event !== "partial") yield event !== "gap" && isFleetEvent(data) ? data : null;
          else if (onPartial !== undefined) onPartial(instancesOf(data));
          else if (instancesOf(data).length > 0) yield null;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (!begun || !isBreak(error)) throw error;
      }
      await pause(around(100 * 2 ** Math.min(silent, 5)), signal);
    }
  }
}

function instancesOf(data: unknown): readonly string[] {
  const { instances } = (data ?? {}) as { readonly instances?: unknown };
  return Array.isArray(instances) ? instances.filter((one) => typeof one === "string") : [];
}

/** Whatever its type: it has one, and says when and by which instance. */
function isFleetEvent(data: unknown): data is FleetEvent {
  if (typeof data !== "object" || data === null) return false;
  const { type, at, instance } = data as Readonly<Record<string, unknown>>;
  return typeof type === "string" && typeof at === "number" && typeof instance === "string";
}
