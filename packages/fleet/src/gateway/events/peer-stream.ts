/**
 * The events of another gateway as they come, over HTTP.
 *
 * Invariants
 * - A gateway that does not begin to answer, or then says nothing for longer than several heartbeats, is cut off.
 * - What it sends is bounded: an event that is too large, or is none, is a gap.
 */

import { isLoopback } from "../../config/gateway-settings.ts";
import { tryJson } from "../../world/try-json.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { ForwardedEvent } from "./event-log.ts";

const OPENING_MS = 5_000;
const EVENT_MAX_CHARACTERS = 64 * 1024;

export type PeerItem =
  | { readonly kind: "open" }
  | { readonly kind: "event"; readonly event: ForwardedEvent; readonly json: string }
  | { readonly kind: "gap" };

export interface PeerStreamParts {
  readonly world: World;
  readonly address: string;
  readonly credential: string;
  /** How long the peer may send nothing. */
  readonly silenceMs: number;
  /** Where to go on; it moves with every event. */
  readonly position: { lastId: string | null };
}

/** Begins with `open`, and ends or rejects when the connection does. */
export async function* peerStream(parts: PeerStreamParts, signal: AbortSignal): AsyncGenerator<PeerItem> {
  const { world, address, credential, silenceMs, position } = parts;
  const silent = new AbortController();
  const until = AbortSignal.any([signal, silent.signal]);
  let waiting = new AbortController();
  const patience = (ms: number) => {
    waiting.abort();
    waiting = new AbortController();
    const cut = () => silent.abort(new Error(`${address} sent nothing for ${ms} ms`));
    sleep(world, ms, waiting.signal, { background: true }).then(cut, () => undefined);
  };
  try {
    patience(OPENING_MS);
    const headers: Record<string, string> = { authorization: `Bearer ${credential}` };
    if (position.lastId !== null) headers["last-event-id"] = position.lastId;
    const response = await fetch(`${address}/v1/events?own=true`, { headers, signal: until, redirect: "error" });
    if (!response.ok || response.body === null) {
      await response.body?.cancel();
      throw new Error(`${address} answered ${response.status}`);
    }
    patience(silenceMs);
    yield { kind: "open" };
    const decoder = new TextDecoder();
    let buffer = "";
    for await (const piece of response.body) {
      patience(silenceMs);
      buffer += decoder.decode(piece, { stream: true });
      for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
        const item = itemOf(buffer.slice(0, end), position);
        buffer = buffer.slice(end + 2);
        if (item !== null) yield item;
      }
      if (buffer.length > EVENT_MAX_CHARACTERS) throw new Error(`${address} sent an event that is too large`);
    }
  } finally {
    waiting.abort();
    // Ends the connection where the reader stopped first.
    silent.abort();
  }
}

/** Whether a URL leads to the host that opens it, or nowhere. The parser brings IP addresses into their usual form. */
export function isOwnHost(address: string): boolean {
  const host = (URL.parse(address)?.hostname ?? "localhost").replace(/^\[|\]$/g, "").replace(/\.$/, "");
  return isLoopback(host) || host.endsWith(".localhost") || /^(?:0\.0\.0\.0|::|::ffff:(?:7f..:.+|0:0))$/.test(host);
}

/**
 * Whether another gateway's address may be asked. A loopback address is another gateway only where this one's own is
 * loopback too; elsewhere it is some program on this host, which would get the credential.
 */
export function mayAsk(address: string, ownAddress: string | null): boolean {
  return !isOwnHost(address) || (ownAddress !== null && isOwnHost(ownAddress));
}

/** `null` for heartbeats, and for notices that are not about events. */
function itemOf(text: string, position: PeerStreamParts["position"]): PeerItem | null {
  let [name, data] = ["", ""];
  for (const line of text.split("\n")) {
    if (line.startsWith("id: ")) position.lastId = line.slice(4, 68);
    else if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (name === "gap") return { kind: "gap" };
  if (data === "") return null;
  if (data.length > EVENT_MAX_CHARACTERS) return { kind: "gap" };
  const event = tryJson(data);
  return isEvent(event) ? { kind: "event", event, json: data } : null;
}

function isEvent(value: unknown): value is ForwardedEvent {
  if (typeof value !== "object" || value === null) return false;
  const { type, at, instance } = value as Readonly<Record<string, unknown>>;
  return typeof type === "string" && typeof at === "number" && typeof instance === "string";
}
