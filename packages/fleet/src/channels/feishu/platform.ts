/**
 * The open platform of Feishu (Lark), through its SDK: downloads files, sends replies.
 *
 * Invariants
 * - A request that the platform asks to retry later is retried, a few times, no sooner than it asked for. A refused
 *   token is replaced at once.
 * - Every request has a deadline: one without a response in time, or an aborted one, counts as failed.
 * - A reply carries its own id, so that one that was sent and not confirmed is not shown twice.
 * - The SDK prints nothing: its errors carry tokens.
 */

import type { Readable } from "node:stream";
import type { Client } from "@larksuiteoapi/node-sdk";
import { z } from "zod";
import type { World } from "../../world/world.ts";
import type { OpenedFile } from "../channel.ts";
import type { FeishuPlatform } from "./feishu-platform.ts";

const ATTEMPTS_MAX = 4;
/** The platform responds within seconds; for a file this covers only the start of its stream. */
const ANSWER_MS = 30_000;
const RETRY_MS = 500;
const RETRY_MAX_MS = 30_000;
/** The codes of a missing, wrong or expired token. */
const TOKEN_CODES = new Set([99_991_661, 99_991_663, 99_991_664, 99_991_665, 99_991_668, 99_991_671]);
/** The codes of "too often" and "not now". */
const BUSY_CODES = new Set([99_991_400, 230_020, 11_232, 1_000_004, 1_000_005]);

export const SILENT_LOGGER = { error() {}, warn() {}, info() {}, debug() {}, trace() {} };

/** The SDK's token cache: forgets refused tokens. */
export class TokenCache {
  readonly #world: World;
  readonly #values = new Map<string, { readonly value: unknown; readonly expiresAt: number }>();

  constructor(world: World) {
    this.#world = world;
  }

  async get(key: unknown, options?: { namespace?: string }): Promise<unknown> {
    const kept = this.#values.get(nameOf(key, options));
    return kept !== undefined && kept.expiresAt > this.#world.wallMs() ? kept.value : undefined;
  }

  async set(key: unknown, value: unknown, expiresAt?: number, options?: { namespace?: string }): Promise<boolean> {
    this.#values.set(nameOf(key, options), { value, expiresAt: expiresAt ?? Number.POSITIVE_INFINITY });
    return true;
  }

  clear(): void {
    this.#values.clear();
  }
}

function nameOf(key: unknown, options: { namespace?: string } = {}): string {
  return `${options.namespace ?? ""}/${String(key)}`;
}

export function feishuPlatform(client: Client, cache: TokenCache, world: World): FeishuPlatform {
  const persistent = <T>(signal: AbortSignal, action: () => Promise<T>) => trying(action, cache, world, signal);
  return {
    open: ({ messageId, key, kind }, signal) =>
      persistent(signal, async () => {
        const payload = { path: { message_id: messageId, file_key: key }, params: { type: kind } };
        const asked = client.im.v1.messageResource.get(payload);
        const tooLate = ({ getReadableStream }: Awaited<typeof asked>) => void getReadableStream().destroy();
        const { getReadableStream, headers } = await inTime(asked, world, signal, tooLate);
        return openedFile(getReadableStream(), headersSchema.parse(headers));
      }),
    reply(messageId, text, signal) {
      const uuid = world.randomHex(16);
      return persistent(signal, async () => {
        const data = { msg_type: "text", content: JSON.stringify({ text }), reply_in_thread: true, uuid };
        const asked = client.im.v1.message.reply({ path: { message_id: messageId }, data });
        const { code = 0, msg = "" } = await inTime(asked, world, signal);
        if (code !== 0) throw new PlatformError(code, msg, null);
      });
    },
  };
}

const headersSchema = z.object({
  "content-length": z.string().optional(),
  "content-disposition": z.string().optional(),
});

function openedFile(content: Readable, headers: z.infer<typeof headersSchema>): OpenedFile {
  const length = Number(headers["content-length"]);
  return {
    content,
    discard: () => void content.destroy(),
    name: nameFrom(headers["content-disposition"]),
    sizeBytes: Number.isSafeInteger(length) ? length : null,
  };
}

/** `filename*` (RFC 5987) before `filename`. */
function nameFrom(disposition: string | undefined): string | null {
  const encoded = /filename\*=(?:UTF-8|utf-8)''([^;]+)/.exec(disposition ?? "")?.[1];
  if (encoded !== undefined && !/%(?![0-9a-fA-F]{2})/.test(encoded)) {
    const bytes = Buffer.from(
      encoded.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
      "latin1",
    );
    return bytes.toString("utf8");
  }
  return /filename="?([^";]+)"?/.exec(disposition ?? "")?.[1] ?? null;
}

/** The platform's response, without the request. */
class PlatformError extends Error {
  override readonly name = "PlatformError";
  readonly code: number;
  readonly retryAfterMs: number | null;

  constructor(code: number, message: string, retryAfterMs: number | null) {
    super(`the platform answered ${code}${message === "" ? "" : `: ${message}`}`);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

async function trying<T>(action: () => Promise<T>, cache: TokenCache, world: World, signal: AbortSignal): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    signal.throwIfAborted();
    try {
      return await action();
    } catch (caught) {
      signal.throwIfAborted();
      const error = await asPlatformError(caught);
      if (attempt === ATTEMPTS_MAX) throw error;
      if (TOKEN_CODES.has(error.code)) cache.clear();
      else if (isTemporary(error)) await pause(world, error.retryAfterMs ?? RETRY_MS * 2 ** (attempt - 1), signal);
      else throw error;
    }
  }
}

function isTemporary({ code }: PlatformError): boolean {
  return BUSY_CODES.has(code) || code === 429 || (code >= 500 && code < 600) || code === 0;
}

const failureSchema = z.object({
  response: z.object({ status: z.number(), headers: z.looseObject({}), data: z.unknown() }),
});
const bodySchema = z.object({ code: z.number(), msg: z.string().default("") });

/** The SDK throws its HTTP library's error, with request, headers and token. This keeps what may be reported. */
async function asPlatformError(error: unknown): Promise<PlatformError> {
  if (error instanceof PlatformError) return error;
  const failure = failureSchema.safeParse(error);
  if (!failure.success) return new PlatformError(0, error instanceof Error ? error.message : "no answer", null);
  const { status, headers, data } = failure.data.response;
  const body = bodySchema.safeParse(await bodyOf(data));
  const resetSeconds = Number(headers["x-ogw-ratelimit-reset"]);
  const retryAfterMs = Number.isFinite(resetSeconds) ? Math.min(resetSeconds * 1000, RETRY_MAX_MS) : null;
  return body.success
    ? new PlatformError(body.data.code, body.data.msg, retryAfterMs)
    : new PlatformError(status, "", retryAfterMs);
}

const BODY_MAX_BYTES = 65_536;

/** In a file request the body of a refusal is a stream too. */
async function bodyOf(data: unknown): Promise<unknown> {
  if (typeof data !== "object" || data === null || !(Symbol.asyncIterator in data)) return data;
  let text = "";
  try {
    for await (const piece of data as AsyncIterable<Uint8Array>) {
      text += Buffer.from(piece).toString("utf8");
      if (text.length > BODY_MAX_BYTES) return null;
    }
    return JSON.parse(text);
  } catch {
    // Neither readable nor JSON: only the status is left.
    return null;
  }
}

/**
 * The platform's response, unless it takes too long or the request is aborted. The SDK itself cannot be interrupted.
 */
function inTime<T>(
  asked: Promise<T>,
  world: World,
  signal: AbortSignal,
  tooLate: (answer: T) => void = () => {},
): Promise<T> {
  return new Promise((resolve, reject) => {
    let over = false;
    const finish = (settle: () => void) => {
      if (over) return;
      over = true;
      timer.cancel();
      signal.removeEventListener("abort", abort);
      settle();
    };
    const abort = () => finish(() => reject(signal.reason));
    const timer = world.timer(ANSWER_MS, () => finish(() => reject(new PlatformError(0, "no answer", null))));
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    asked.then(
      (answer) => (over ? tooLate(answer) : finish(() => resolve(answer))),
      (error: unknown) => finish(() => reject(error)),
    );
  });
}

function pause(world: World, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      timer.cancel();
      reject(signal.reason);
    };
    const timer = world.timer(delayMs, () => {
      signal.removeEventListener("abort", abort);
      resolve();
    });
    signal.addEventListener("abort", abort, { once: true });
  });
}
