/**
 * Requests to a provisioner: DeerFlow's contract from the client's side.
 *
 * The answers are untrusted: each has a size limit, a limit of values and a deadline, is parsed with a schema, and a
 * redirect is never followed. Texts of the provisioner are cut before they become part of an error.
 *
 *   Refused    it has answered, and says no
 *   Silent     it did not answer, or with something else: whether the request took effect is unknown
 */

import { z } from "zod";
import { checked, readJson } from "../../untrusted/json.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { checkSandboxUrl } from "./sandbox-url.ts";

export interface ClientOptions {
  readonly url: URL;
  /** Read for each request, so that a changed file takes effect; `null`: none. */
  readonly key: () => Promise<string | null>;
  readonly sandboxHosts: readonly string[];
  readonly world: World;
}

export interface Order {
  readonly id: string;
  readonly thread: string;
  readonly user: string;
}

export interface RemoteSandbox {
  readonly id: string;
  /** The base URL of its AIO API. */
  readonly url: string;
  readonly status: string;
}

export class Refused extends Error {
  override readonly name = "Refused";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export class Silent extends Error {
  override readonly name = "Silent";
}

/** The limits of DeerFlow's own client. */
const CREATE_MS = 30_000;
const REMOVE_MS = 15_000;
const LOOK_MS = 10_000;

const ONE_MAX_BYTES = 64 * 1024;
/** Some ten thousand sandboxes. */
const LIST_MAX_BYTES = 8 * 1024 * 1024;
const ONE_MAX_VALUES = 256;
const LIST_MAX_VALUES = 200_000;
const PARTS_MAX = 4_096;
const SAID_MAX_CHARS = 300;
const ID_MAX_CHARS = 256;

const sandboxSchema = z.object({
  sandbox_id: z.string().max(ID_MAX_CHARS),
  sandbox_url: z.string(),
  status: z.string().max(64),
});
/** Of a list only ids and statuses are used; a URL is asked for when it is needed. */
const listSchema = z.object({
  sandboxes: z.array(z.object({ sandbox_id: z.string(), status: z.string().optional() })),
});
const endSchema = z.object({ stopped: z.boolean().optional() });
const detailSchema = z.object({ detail: z.unknown() });

interface Call {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly body?: object;
  readonly timeoutMs: number;
  readonly maxBytes?: number;
}

interface Reply {
  readonly status: number;
  readonly body: Buffer;
}

export class ProvisionerClient {
  readonly #options: ClientOptions;
  readonly #base: string;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#base = options.url.href.replace(/\/+$/, "");
  }

  async create({ id, thread, user }: Order, signal: AbortSignal): Promise<RemoteSandbox> {
    const body = {
      ...{ sandbox_id: id, thread_id: thread, user_id: user, include_legacy_skills: false },
      ...{ provision_lark_cli_runtime: false, provision_lark_cli_broker: false },
    };
    const reply = await this.#ask({ method: "POST", path: "/api/sandboxes", body, timeoutMs: CREATE_MS }, signal);
    return this.#sandbox(id, reply);
  }

  /** `null`: there is none. */
  async find(id: string, signal: AbortSignal): Promise<RemoteSandbox | null> {
    try {
      return this.#sandbox(id, await this.#ask({ method: "GET", path: pathOf(id), timeoutMs: LOOK_MS }, signal));
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return null;
      throw error;
    }
  }

  async list(signal: AbortSignal): Promise<readonly { readonly id: string; readonly status: string }[]> {
    const call = { method: "GET", path: "/api/sandboxes", timeoutMs: LOOK_MS, maxBytes: LIST_MAX_BYTES } as const;
    const reply = await this.#ask(call, signal);
    const { sandboxes } = await this.#parsed(listSchema, reply, "the list", LIST_MAX_VALUES);
    return sandboxes
      .filter(({ sandbox_id }) => sandbox_id.length <= ID_MAX_CHARS)
      .map(({ sandbox_id, status = "Unknown" }) => ({ id: sandbox_id, status }));
  }

  /** Whether it is gone. A provisioner that does not say is taken at its word. */
  async remove(id: string, signal: AbortSignal): Promise<boolean> {
    const reply = await this.#ask({ method: "DELETE", path: pathOf(id), timeoutMs: REMOVE_MS }, signal);
    const { stopped = true } = await this.#parsed(endSchema, reply, "the end of a sandbox", ONE_MAX_VALUES);
    return stopped;
  }

  async #sandbox(id: string, reply: Reply): Promise<RemoteSandbox> {
    const { sandbox_id, sandbox_url, status } = await this.#parsed(sandboxSchema, reply, "a sandbox", ONE_MAX_VALUES);
    if (sandbox_id !== id) throw new Silent("the provisioner answered for another sandbox");
    return { id, status, url: this.#checkedUrl(sandbox_url) };
  }

  #checkedUrl(text: string): string {
    const { url, sandboxHosts } = this.#options;
    try {
      return checkSandboxUrl(text, url, sandboxHosts);
    } catch (error) {
      throw new Silent(error instanceof Error ? error.message : String(error), { cause: error });
    }
  }

  async #parsed<T>(schema: z.ZodType<T>, { body }: Reply, what: string, maxValues: number): Promise<T> {
    const parsed = await checked(schema, await readJson(body, maxValues));
    if (parsed === undefined) throw new Silent(`the provisioner's answer for ${what} is not of its form`);
    return parsed;
  }

  async #ask(call: Call, signal: AbortSignal): Promise<Reply> {
    const { world } = this.#options;
    const late = () => new Silent(`the provisioner did not answer within ${call.timeoutMs} ms`);
    const reply = await within(world, call.timeoutMs, signal, late, (bounded) => this.#send(call, bounded));
    if (reply.status === 200) return reply;
    if (reply.status >= 300 && reply.status < 400) throw new Silent("the provisioner redirects, which is not followed");
    const said = detailOf(await readJson(reply.body, ONE_MAX_VALUES));
    throw new Refused(reply.status, `the provisioner answered ${reply.status}${said === "" ? "" : `: ${said}`}`);
  }

  async #send({ method, path, body, maxBytes = ONE_MAX_BYTES }: Call, signal: AbortSignal): Promise<Reply> {
    const key = await this.#options.key();
    try {
      const response = await fetch(`${this.#base}${path}`, {
        ...{ method, signal, redirect: "manual" },
        headers: {
          ...(key === null ? {} : { "x-api-key": key }),
          ...(body === undefined ? {} : { "content-type": "application/json" }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: await bounded(response, maxBytes) };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof Silent) throw error;
      throw new Silent(`the provisioner does not answer: ${causeOf(error)}`, { cause: error });
    }
  }
}

async function bounded(response: Response, maxBytes: number): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    parts.push(part);
    size += part.byteLength;
    // Leaving the loop cancels the rest.
    if (size > maxBytes || parts.length > PARTS_MAX)
      throw new Silent(`the provisioner sent more than ${maxBytes} bytes, or in too many parts`);
  }
  return Buffer.concat(parts, size);
}

function pathOf(id: string): string {
  return `/api/sandboxes/${encodeURIComponent(id)}`;
}

function detailOf(value: unknown): string {
  const { detail } = detailSchema.safeParse(value).data ?? {};
  const text = typeof detail === "string" ? detail : detail === undefined ? "" : JSON.stringify(detail);
  // No line breaks or control characters of another service in our texts.
  return text.slice(0, SAID_MAX_CHARS).replace(/\p{Cc}/gu, " ");
}

/** `fetch` says little itself. */
function causeOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}
