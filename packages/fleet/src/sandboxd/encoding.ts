/**
 * Encodes a call with bytes: a JSON line, then the bytes.
 */

export function encodeCall(call: object, bytes: string | Uint8Array | undefined): Buffer {
  const line = Buffer.from(`${JSON.stringify(call)}\n`);
  return bytes === undefined ? line : Buffer.concat([line, encode(bytes)]);
}

export function encode(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? Buffer.from(content, "utf8") : content;
}
