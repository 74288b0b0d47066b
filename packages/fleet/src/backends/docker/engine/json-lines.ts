/**
 * Streams of the engine: one JSON document per line, for as long as it lasts.
 */

/** Ends when the stream does. A stream that breaks, or the signal, rejects. */
export async function* jsonLines(stream: NodeJS.ReadableStream, signal: AbortSignal): AsyncGenerator<unknown> {
  const onAbort = () => (stream as NodeJS.ReadableStream & { destroy(error?: Error): void }).destroy();
  signal.addEventListener("abort", onAbort, { once: true });
  let text = "";
  try {
    if (signal.aborted) throw signal.reason;
    for await (const chunk of stream) {
      text += chunk.toString();
      for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n")) {
        const line = text.slice(0, end).trim();
        text = text.slice(end + 1);
        if (line !== "") yield JSON.parse(line);
      }
    }
    signal.throwIfAborted();
    if (text.trim() !== "") yield JSON.parse(text);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
    onAbort();
  }
}
