/**
 * HTTP requests to the API server.
 *
 * Invariants
 * - Every request has a deadline, our user agent and a limit for the size of its response.
 * - A request that gets no whole response is `engine_unavailable`. It may have taken effect.
 * - Nothing is sent twice here: only the caller knows what may be repeated.
 */

import { type ClientRequest, type IncomingMessage, request as plainRequest } from "node:http";
import { request as secureRequest } from "node:https";
import { SandlotError } from "@sandlot/contract";
import { packageManifest } from "../../../package-files.ts";
import { within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { Access } from "./access.ts";

export interface ApiRequest {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  /** With its query. */
  readonly path: string;
  readonly body?: object;
  readonly contentType?: string;
}

export interface ApiResponse {
  readonly status: number;
  /** From the header `Retry-After`; `null` without one. */
  readonly retryAfterMs: number | null;
  /** Parsed JSON, or the text where it is none. */
  readonly body: unknown;
}

/** Many times what a loaded API server takes. */
const DEADLINE_MS = 20_000;
/** A page of a list has up to 500 pods of some kilobytes each. */
const RESPONSE_MAX_BYTES = 64 * 1024 * 1024;
const RETRY_AFTER_MS = 1_000;

export class ApiTransport {
  readonly #access: Access;
  readonly #world: World;
  readonly #userAgent: string;

  constructor(access: Access, world: World) {
    this.#access = access;
    this.#world = world;
    this.#userAgent = `sandlot/${packageManifest().version}`;
  }

  get access(): Access {
    return this.#access;
  }

  /** The whole response, whatever its status. */
  send(request: ApiRequest, signal: AbortSignal): Promise<ApiResponse> {
    const late = () => this.unavailable(`it did not answer ${request.method} within ${DEADLINE_MS} ms`);
    return within(this.#world, DEADLINE_MS, signal, late, async (either) => {
      const response = await this.#open(request, either);
      return { ...head(response), body: await whole(response, either, (problem) => this.unavailable(problem)) };
    });
  }

  /** A response that is read as it comes. Its status is checked by the caller. The signal ends it. */
  async stream(request: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const controller = new AbortController();
    const onOuter = () => controller.abort(signal.reason);
    signal.addEventListener("abort", onOuter, { once: true });
    const late = this.unavailable(`it did not begin to answer within ${DEADLINE_MS} ms`);
    const timer = this.#world.timer(DEADLINE_MS, () => controller.abort(late));
    try {
      signal.throwIfAborted();
      const response = await this.#open(request, controller.signal);
      response.once("close", () => signal.removeEventListener("abort", onOuter));
      return response;
    } catch (error) {
      signal.removeEventListener("abort", onOuter);
      throw error;
    } finally {
      timer.cancel();
    }
  }

  /** The headers and options of a WebSocket to the API server. */
  async upgradeOptions(): Promise<object> {
    const { headers, ...options } = await this.#access.forRequest();
    return { ...options, headers: { ...(headers as object), "User-Agent": this.#userAgent } };
  }

  unavailable(problem: string, cause?: unknown): SandlotError {
    const tried = [this.#access.server.href];
    const details = { engine: "kubernetes", problem, tried, retryAfterMs: RETRY_AFTER_MS };
    return new SandlotError("engine_unavailable", details, { cause });
  }

  async #open({ method, path, body, contentType }: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const { server } = this.#access;
    const { headers: credentials, ...options } = await this.#credentials();
    signal.throwIfAborted();
    const sent = body === undefined ? null : Buffer.from(JSON.stringify(body));
    const headers = {
      ...(credentials as Record<string, string>),
      accept: "application/json",
      "user-agent": this.#userAgent,
      ...(sent !== null && {
        "content-type": contentType ?? "application/json",
        "content-length": String(sent.length),
      }),
    };
    const send = server.protocol === "http:" ? plainRequest : secureRequest;
    const url = new URL(server.pathname.replace(/\/$/, "") + path, server);
    return new Promise((resolve, reject) => {
      const asked: ClientRequest = send(url, { ...options, method, headers });
      const onAbort = () => {
        asked.destroy();
        reject(signal.reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      asked.once("close", () => signal.removeEventListener("abort", onAbort));
      asked.on("error", (error) => reject(signal.aborted ? signal.reason : this.unavailable(reasonOf(error), error)));
      asked.once("response", resolve);
      asked.end(sent ?? undefined);
    });
  }

  async #credentials() {
    try {
      return await this.#access.forRequest();
    } catch (error) {
      throw this.unavailable(`no credentials: ${reasonOf(error)}`, error);
    }
  }
}

function head(response: IncomingMessage): Pick<ApiResponse, "status" | "retryAfterMs"> {
  const seconds = Number(response.headers["retry-after"]);
  const retryAfterMs = Number.isFinite(seconds) && seconds >= 0 ? seconds * 1_000 : null;
  return { status: response.statusCode ?? 0, retryAfterMs };
}

async function whole(
  response: IncomingMessage,
  signal: AbortSignal,
  unavailable: (problem: string) => SandlotError,
): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > RESPONSE_MAX_BYTES) throw unavailable(`its response is larger than ${RESPONSE_MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof SandlotError ? error : unavailable(`its response broke off: ${reasonOf(error)}`);
  } finally {
    response.destroy();
  }
  const text = Buffer.concat(chunks).toString("utf8");
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function reasonOf(error: unknown): string {
  const { code, message } = error as { code?: string; message?: string };
  if (code === "ECONNREFUSED") return "nothing listens there";
  return message ?? String(error);
}
