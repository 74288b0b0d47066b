/** Reads server-sent events one by one. */

export interface SseEvent {
  readonly event: string;
  readonly id: string | null;
  readonly data: Record<string, unknown>;
}

export async function* sseEvents(response: Response): AsyncGenerator<SseEvent> {
  let buffer = "";
  const decoder = new TextDecoder();
  for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
    buffer += decoder.decode(piece, { stream: true });
    for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
      const lines = buffer.slice(0, end).split("\n");
      buffer = buffer.slice(end + 2);
      const field = (name: string) =>
        lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? null;
      const data = field("data");
      if (data !== null) yield { event: field("event") ?? "message", id: field("id"), data: JSON.parse(data) };
    }
  }
}

export async function allEvents(response: Response): Promise<SseEvent[]> {
  const events: SseEvent[] = [];
  for await (const event of sseEvents(response)) events.push(event);
  return events;
}

export function outputOf(events: readonly SseEvent[], stream: "stdout" | "stderr"): string {
  return Buffer.concat(
    events.filter(({ event }) => event === stream).map(({ data }) => Buffer.from(String(data.base64), "base64")),
  ).toString("utf8");
}
