/** Server-sent events out of an answer's body. */

import { ConnectionBroken } from "./errors.ts";

export interface ServerEvent {
  readonly event: string;
  readonly id: string | null;
  readonly data: unknown;
}

/** Ends when the server ends the stream; rejects with `ConnectionBroken` when the connection does. */
export async function* serverEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let buffer = "";
  try {
    while (true) {
      const { done, value } = await reader.read().catch((error: unknown) => {
        throw new ConnectionBroken("the stream broke", { cause: error });
      });
      if (done) return;
      // What came before holds no end, but for half of one.
      let from = Math.max(0, buffer.length - 1);
      buffer += decoder.decode(value, { stream: true });
      for (let end = buffer.indexOf("\n\n", from); end >= 0; end = buffer.indexOf("\n\n", from)) {
        const event = parse(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        from = 0;
        if (event !== null) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parse(text: string): ServerEvent | null {
  let event = "message";
  let id: string | null = null;
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data === "" ? null : { event, id, data: JSON.parse(data) };
}
