/**
 * The stream of a watch: one JSON document per line.
 *
 * Invariants
 * - A version that is too old comes as an event of type ERROR inside a response with status 200. It is the last event.
 * - Silence breaks the stream: a connection that died without a packet would otherwise look like a quiet cluster.
 * - A line has a limit: the server is trusted, but not with this process's memory.
 */

import type { IncomingMessage } from "node:http";
import { z } from "zod";
import type { World } from "../../../world/world.ts";
import { apiObjectSchema, type WatchEvent } from "./api.ts";

export interface WatchStreamParts {
  readonly world: World;
  readonly silenceMs: number;
  /** Ends the request. */
  readonly ending: AbortController;
  readonly kind: string;
}

const LINE_MAX_BYTES = 8 * 1024 * 1024;
const REFUSAL_MAX_BYTES = 64 * 1024;

const eventSchema = z.looseObject({ type: z.string(), object: z.unknown() });
const statusSchema = z.looseObject({ code: z.int().default(0), message: z.string().default("") });
const OBJECT_EVENTS: ReadonlySet<string> = new Set(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]);

export async function* watchStream(
  response: IncomingMessage,
  { world, silenceMs, ending, kind }: WatchStreamParts,
  refusal: (response: { status: number; body: unknown }) => Error,
): AsyncGenerator<WatchEvent> {
  const status = response.statusCode ?? 0;
  if (status !== 200) throw refusal({ status, body: await beginning(response) });
  const silent = () => ending.abort(new Error(`the watch of ${kind} was silent for ${silenceMs} ms`));
  let timer = world.timer(silenceMs, silent, { background: true });
  const decoder = new TextDecoder();
  let text = "";
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      timer.cancel();
      timer = world.timer(silenceMs, silent, { background: true });
      text += decoder.decode(chunk, { stream: true });
      if (text.length > LINE_MAX_BYTES) throw new Error(`an event of ${kind} is larger than ${LINE_MAX_BYTES} bytes`);
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) if (line !== "") yield eventOf(line);
    }
    ending.signal.throwIfAborted();
  } finally {
    timer.cancel();
    response.destroy();
  }
}

function eventOf(line: string): WatchEvent {
  const { type, object } = eventSchema.parse(JSON.parse(line));
  if (OBJECT_EVENTS.has(type)) {
    const known = type as "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
    // A bookmark has nothing but its version.
    const named =
      type === "BOOKMARK" ? { ...(object as object), metadata: { name: "", ...metadataOf(object) } } : object;
    return { type: known, object: apiObjectSchema.parse(named) };
  }
  const { code, message } = statusSchema.parse(object);
  return { type: "ERROR", status: code, problem: message };
}

function metadataOf(object: unknown): object {
  return (object as { metadata?: object } | null)?.metadata ?? {};
}

async function beginning(response: IncomingMessage): Promise<unknown> {
  let text = "";
  for await (const chunk of response as AsyncIterable<Buffer>) {
    text += chunk.toString();
    if (text.length > REFUSAL_MAX_BYTES) break;
  }
  response.destroy();
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
