/**
 * The API server over HTTP: `Api` in requests and responses.
 *
 * Invariants
 * - 429 and 503 with a `Retry-After` are obeyed, with jitter, until the caller's deadline. Such a request has not taken
 *   effect.
 * - A read, and a removal, which names its uid, are repeated for some seconds after a broken connection or a 5xx. No other
 *   write is: it may have taken effect, and only its caller can look.
 * - At most `WRITES_MAX` writes at once; removals go first.
 * - A list comes in pages of one version. A page that is refused as too old begins the list anew, without its token.
 */

import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { type AccessOptions, openAccess } from "./access.ts";
import {
  type Api,
  type ApiObject,
  ApiRefusal,
  apiObjectSchema,
  type Kind,
  type Listed,
  type ListQuery,
  type PatchStep,
  type RemoveOptions,
  type WatchEvent,
  type WatchOptions,
} from "./api.ts";
import { knownRefusal } from "./refusals.ts";
import { type ApiRequest, type ApiResponse, ApiTransport } from "./transport.ts";
import { watchStream } from "./watch-stream.ts";
import { WriteQueue } from "./write-queue.ts";

const WRITES_MAX = 16;
const PAGE_SIZE = 500;
/** A list that is refused again and again as too old. */
const LIST_ATTEMPTS = 5;
const RETRIES_MAX = 8;
const RETRY_MS = 500;
const RETRY_MAX_MS = 15_000;
/** For what may be repeated without harm. A longer outage is the caller's. */
const REPEATS_MAX = 4;
const REPEAT_MS = 100;
const REPEATED_FOR_MS = 5_000;

/** Where each kind is in the API. Kinds of the cluster have no namespace. */
const PLACES: Readonly<Record<Kind, { readonly group: string; readonly ofCluster?: true }>> = {
  pods: { group: "/api/v1" },
  secrets: { group: "/api/v1" },
  configmaps: { group: "/api/v1" },
  persistentvolumeclaims: { group: "/api/v1" },
  events: { group: "/api/v1" },
  services: { group: "/api/v1" },
  resourcequotas: { group: "/api/v1" },
  networkpolicies: { group: "/apis/networking.k8s.io/v1" },
  namespaces: { group: "/api/v1", ofCluster: true },
  persistentvolumes: { group: "/api/v1", ofCluster: true },
  nodes: { group: "/api/v1", ofCluster: true },
  runtimeclasses: { group: "/apis/node.k8s.io/v1", ofCluster: true },
  storageclasses: { group: "/apis/storage.k8s.io/v1", ofCluster: true },
  selfsubjectaccessreviews: { group: "/apis/authorization.k8s.io/v1", ofCluster: true },
};

const statusSchema = z.looseObject({ message: z.string().default(""), reason: z.string().default("") });
const pageSchema = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string(), continue: z.string().optional() }),
  items: z.array(apiObjectSchema).nullable(),
});

export async function openApi(options: AccessOptions, world: World): Promise<ApiClient> {
  return new ApiClient(new ApiTransport(await openAccess(options), world), world);
}

export class ApiClient implements Api {
  readonly transport: ApiTransport;
  readonly namespace: string;
  readonly server: string;
  readonly #world: World;
  readonly #writes = new WriteQueue(WRITES_MAX);

  constructor(transport: ApiTransport, world: World) {
    this.transport = transport;
    this.namespace = transport.access.namespace;
    this.server = transport.access.server.href;
    this.#world = world;
  }

  async get(kind: Kind, name: string, signal: AbortSignal): Promise<ApiObject | null> {
    const response = await this.#read(this.#path(kind, name), signal);
    if (response.status === 404) return null;
    return this.#object(response, "get", kind);
  }

  async list(kind: Kind, query: ListQuery, signal: AbortSignal): Promise<Listed> {
    for (let attempt = 1; ; attempt++) {
      const listed = await this.#pages(kind, query, signal);
      if (listed !== null) return listed;
      if (attempt >= LIST_ATTEMPTS) throw this.transport.unavailable("its lists expire before they are read");
    }
  }

  async create(kind: Kind, body: object, signal: AbortSignal): Promise<ApiObject> {
    const response = await this.#write({ method: "POST", path: this.#path(kind), body }, signal);
    return this.#object(response, "create", kind);
  }

  async patch(kind: Kind, name: string, steps: readonly PatchStep[], signal: AbortSignal): Promise<ApiObject | null> {
    const contentType = "application/json-patch+json";
    const request = { method: "PATCH", path: this.#path(kind, name), body: steps, contentType } as const;
    const response = await this.#write(request, signal);
    return response.status === 404 ? null : this.#object(response, "patch", kind);
  }

  async remove(
    kind: Kind,
    name: string,
    { uid, resourceVersion, gracePeriodSeconds }: RemoveOptions,
    signal: AbortSignal,
  ): Promise<ApiObject | null> {
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      preconditions: { uid, ...(resourceVersion !== undefined && { resourceVersion }) },
      ...(gracePeriodSeconds !== undefined && { gracePeriodSeconds }),
    };
    const response = await this.#write({ method: "DELETE", path: this.#path(kind, name), body }, signal);
    // Another object has the name now.
    if (response.status === 404 || response.status === 409) return null;
    if (response.status >= 300) throw this.#refusal(response, "delete", kind);
    // An object that is gone at once is answered with a status instead of the object.
    const object = apiObjectSchema.safeParse(response.body);
    return object.success && object.data.metadata.uid !== "" ? object.data : null;
  }

  async *watch(kind: Kind, query: ListQuery & WatchOptions, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    const { resourceVersion, timeoutSeconds, silenceMs, ...selectors } = query;
    const parameters = {
      ...selectors,
      watch: "1",
      allowWatchBookmarks: "true",
      resourceVersion,
      timeoutSeconds: String(timeoutSeconds),
    };
    const path = `${this.#path(kind)}?${new URLSearchParams(parameters)}`;
    const ending = new AbortController();
    const either = AbortSignal.any([signal, ending.signal]);
    try {
      const response = await this.transport.stream({ method: "GET", path }, either);
      yield* watchStream(response, { world: this.#world, silenceMs, ending, kind }, (refused) =>
        this.#refusal(refused, "watch", kind),
      );
    } finally {
      ending.abort(new Error("the watch has ended"));
    }
  }

  /** The last lines that a container wrote. */
  async log(pod: string, tailLines: number, signal: AbortSignal): Promise<string> {
    const query = new URLSearchParams({ tailLines: String(tailLines), limitBytes: "16384" });
    const response = await this.#read(`${this.#path("pods", pod)}/log?${query}`, signal);
    return response.status === 200 ? String(response.body) : "";
  }

  /** The path of a pod's subresource, for a WebSocket. */
  subresource(pod: string, name: string): string {
    return `${this.#path("pods", pod)}/${name}`;
  }

  /** Asks what this process may do. The answer has no name, as the objects of the other calls have. */
  async review(body: object, signal: AbortSignal): Promise<unknown> {
    const response = await this.#write({ method: "POST", path: this.#path("selfsubjectaccessreviews"), body }, signal);
    if (response.status >= 300) throw this.#refusal(response, "create", "selfsubjectaccessreviews");
    return response.body;
  }

  /** The git version of the API server, such as v1.33.13. */
  async version(signal: AbortSignal): Promise<string> {
    const response = await this.#read("/version", signal);
    if (response.status !== 200) throw this.#refusal(response, "get", "version");
    return z.looseObject({ gitVersion: z.string() }).parse(response.body).gitVersion;
  }

  close(): void {
    this.transport.access.close();
  }

  /** `null`: a page was too old. */
  async #pages(kind: Kind, query: ListQuery, signal: AbortSignal): Promise<Listed | null> {
    const items: ApiObject[] = [];
    let token: string | undefined;
    while (true) {
      const parameters = { ...query, limit: String(PAGE_SIZE), ...(token !== undefined && { continue: token }) };
      const response = await this.#read(`${this.#path(kind)}?${new URLSearchParams(parameters)}`, signal);
      if (response.status === 410) return null;
      if (response.status !== 200) throw this.#refusal(response, "list", kind);
      const page = this.#parsed(pageSchema, response.body);
      items.push(...(page.items ?? []));
      token = page.metadata.continue;
      if (token === undefined || token === "") return { items, resourceVersion: page.metadata.resourceVersion };
    }
  }

  #path(kind: Kind, name?: string): string {
    const { group, ofCluster } = PLACES[kind];
    const collection = ofCluster ? `${group}/${kind}` : `${group}/namespaces/${this.namespace}/${kind}`;
    return name === undefined ? collection : `${collection}/${encodeURIComponent(name)}`;
  }

  #read(path: string, signal: AbortSignal): Promise<ApiResponse> {
    return this.#obeying({ method: "GET", path }, signal);
  }

  #write(request: ApiRequest, signal: AbortSignal): Promise<ApiResponse> {
    return this.#writes.run(request.method === "DELETE", signal, () => this.#obeying(request, signal));
  }

  async #obeying(request: ApiRequest, signal: AbortSignal): Promise<ApiResponse> {
    const since = this.#world.monotonicMs();
    const isHarmless = request.method === "GET" || request.method === "DELETE";
    let repeats = 0;
    const mayRepeat = () =>
      isHarmless && repeats++ < REPEATS_MAX && this.#world.monotonicMs() - since < REPEATED_FOR_MS;
    for (let attempt = 1; ; attempt++) {
      let waitMs: number;
      try {
        const response = await this.transport.send(request, signal);
        const { status, retryAfterMs } = response;
        const isBusy = status === 429 || (status === 503 && retryAfterMs !== null);
        if (isBusy ? attempt > RETRIES_MAX : status < 500 || !mayRepeat()) return response;
        waitMs = isBusy ? (retryAfterMs ?? RETRY_MS * attempt) : REPEAT_MS * 2 ** repeats;
      } catch (error) {
        signal.throwIfAborted();
        if (!mayRepeat()) throw error;
        // A kept connection may have been closed while it was idle: the first repeat tells.
        waitMs = repeats === 1 ? 0 : REPEAT_MS * 2 ** repeats;
      }
      await sleep(this.#world, Math.min(waitMs, RETRY_MAX_MS) * (1 + this.#world.random() / 2), signal);
    }
  }

  #object(response: ApiResponse, verb: string, kind: Kind): ApiObject {
    if (response.status >= 300) throw this.#refusal(response, verb, kind);
    return this.#parsed(apiObjectSchema, response.body);
  }

  #refusal({ status, body }: Pick<ApiResponse, "status" | "body">, verb: string, resource: string): Error {
    const parsed = statusSchema.safeParse(body);
    const { message, reason } = parsed.success ? parsed.data : { message: String(body).slice(0, 500), reason: "" };
    if (status === 401) return this.transport.unavailable("it does not accept our credentials (401)");
    if (status >= 500) return this.transport.unavailable(`${message || "it failed"} (${status})`);
    return knownRefusal(new ApiRefusal(status, reason, message), { verb, resource, namespace: this.namespace });
  }

  #parsed<T>(schema: z.ZodType<T>, body: unknown): T {
    const parsed = schema.safeParse(body);
    if (parsed.success) return parsed.data;
    throw new SandlotError("engine_unavailable", {
      engine: "kubernetes",
      problem: `it answered with something else than an object: ${parsed.error.issues[0]?.message ?? ""}`,
      tried: [this.server],
      retryAfterMs: RETRY_MS,
    });
  }
}
