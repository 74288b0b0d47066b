/** Bytes and text, with functions that every browser has. */

export function encodeBase64(bytes: Uint8Array): string {
  let text = "";
  // In pieces: the number of arguments of one call is limited.
  for (let at = 0; at < bytes.byteLength; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(text);
}

export function decodeBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function toBytes(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}

/** Text stays text where possible; other bytes are sent as base64. */
export function stdinFields(stdin: string | Uint8Array | undefined): { stdin?: string; stdinBase64?: string } {
  if (stdin === undefined) return {};
  return typeof stdin === "string" ? { stdin } : { stdinBase64: encodeBase64(stdin) };
}

/** Node sends a stream directly. Browsers do not over HTTP/1.1: there it is buffered first. */
export async function streamBody(content: AsyncIterable<Uint8Array>): Promise<ReadableStream<Uint8Array> | Blob> {
  if (!("process" in globalThis)) {
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for await (const piece of content) pieces.push(piece as Uint8Array<ArrayBuffer>);
    return new Blob(pieces);
  }
  const iterator = content[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      try {
        const next = await iterator.next();
        if (next.done === true) controller.close();
        else if (next.value.byteLength > 0) controller.enqueue(next.value);
        else await this.pull?.(controller);
      } catch (error) {
        controller.error(error);
      }
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}
