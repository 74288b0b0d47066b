/**
 * Events that the platform sends by HTTP. Anyone with the URL can send them too, so each must prove its origin: with a
 * signature over the exact bytes (`encryptKey`), or at least with the token that only the platform knows.
 *
 * The SDK does not check the token, signs what it parsed instead of what arrived, and reads bodies of any size. So the
 * checks are here, and the SDK decrypts and dispatches.
 */

import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { z } from "zod";
import { tryJson } from "../../world/try-json.ts";

export interface WebhookParts {
  /** The SDK's `EventDispatcher`. */
  readonly dispatcher: { invoke(event: unknown, options: { readonly needCheck: boolean }): Promise<unknown> };
  /** The SDK's `AESCipher`. */
  readonly cipher: { decrypt(text: string): string } | null;
  readonly encryptKey: string | null;
  readonly verificationToken: string | null;
}

const BODY_MAX_BYTES = 1_048_576;

const sealedSchema = z.object({ encrypt: z.string() });
const openSchema = z.looseObject({
  type: z.string().optional(),
  challenge: z.string().optional(),
  token: z.string().optional(),
  header: z.looseObject({ token: z.string().optional() }).optional(),
});

export async function handleWebhook(
  parts: WebhookParts,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (request.method !== "POST") return answer(response, 405, {});
  const body = await readBody(request);
  if (body === null) return answer(response, 413, {});
  const event = opened(parts, body, request.headers);
  if (event === null) return answer(response, 401, {});
  if (event.type === "url_verification") return answer(response, 200, { challenge: event.challenge });
  await parts.dispatcher.invoke(event, { needCheck: false });
  answer(response, 200, {});
}

/** The event, if it comes from the platform. */
function opened(parts: WebhookParts, body: Buffer, headers: IncomingMessage["headers"]) {
  const { cipher, encryptKey, verificationToken } = parts;
  const json = tryJson(body.toString("utf8"));
  const sealed = sealedSchema.safeParse(json);
  if (encryptKey !== null && (!sealed.success || !isSigned(body, headers, encryptKey))) {
    // The platform's first request is encrypted, but not signed.
    if (!sealed.success || cipher === null) return null;
    const question = openSchema.safeParse(decrypted(cipher, sealed.data.encrypt));
    return question.success && question.data.type === "url_verification" ? question.data : null;
  }
  const event = openSchema.safeParse(sealed.success && cipher !== null ? decrypted(cipher, sealed.data.encrypt) : json);
  if (!event.success) return null;
  const token = event.data.header?.token ?? event.data.token ?? "";
  return verificationToken !== null && !isSame(token, verificationToken) ? null : event.data;
}

function isSigned(body: Buffer, headers: IncomingMessage["headers"], encryptKey: string): boolean {
  const timestamp = String(headers["x-lark-request-timestamp"] ?? "");
  const nonce = String(headers["x-lark-request-nonce"] ?? "");
  const expected = createHash("sha256")
    .update(timestamp + nonce + encryptKey)
    .update(body)
    .digest("hex");
  return isSame(String(headers["x-lark-signature"] ?? ""), expected);
}

/** Constant time. */
function isSame(given: string, expected: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}

function decrypted(cipher: NonNullable<WebhookParts["cipher"]>, text: string): unknown {
  try {
    return JSON.parse(cipher.decrypt(text));
  } catch {
    // Encrypted with another key, or not at all.
    return null;
  }
}

async function readBody(request: IncomingMessage): Promise<Buffer | null> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size > BODY_MAX_BYTES) return null;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
