/** Server-sent events from a response's body. */

import { ConnectionBroken, jsonOf } from "./errors.ts";
import type { StreamedResponse } from "./node-calls.ts";

export interface ServerEvent {
  readonly event: string;
  readonly id: string | null;
  readonly data: unknown;
}

/** Ends when the server ends the stream; rejects with `ConnectionBroken` when the connection does. `url` is for errors. */
export async function* serverEvents(
  { chunks }: Pick<StreamedResponse, "chunks">,
  url: string,
): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder();
  let buffer = "";
  for await (const chunk of untilBroken(chunks)) {
    // Earlier text contains no separator, except half of one.
    let from = Math.max(0, buffer.length - 1);
    buffer += decoder.decode(chunk, { stream: true });
    for (let end = buffer.indexOf("\n\n", from); end >= 0; end = buffer.indexOf("\n\n", from)) {
      const event = parse(buffer.slice(0, end), url);
      buffer = buffer.slice(end + 2);
      from = 0;
      if (event !== null) yield event;
    }
  }
}

async function* untilBroken(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* chunks;
  } catch (error) {
    throw new ConnectionBroken("the stream broke", { cause: error });
  }
}

function parse(text: string, url: string): ServerEvent | null {
  let event = "message";
  let id: string | null = null;
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data === "" ? null : { event, id, data: jsonOf(data, url) };
}
