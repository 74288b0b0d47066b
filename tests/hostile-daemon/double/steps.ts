/**
 * The steps of a double on the bare connection, and the honest responses as bytes. An endless step goes on until the
 * other side closes.
 */

import { createHash } from "node:crypto";
import type { Chance } from "../../fuzz/generate.ts";
import type { Honest } from "./honest.ts";

export type Step =
  | { readonly do: "write"; readonly bytes: Buffer }
  /** Repeatedly, as fast as possible, but no more than `maxBytes`. */
  | { readonly do: "flood"; readonly bytes: Buffer; readonly maxBytes: number }
  /** One byte at a time. */
  | { readonly do: "drip"; readonly bytes: Buffer }
  | { readonly do: "stall" }
  | { readonly do: "end" }
  | { readonly do: "reset" };

export const text = (value: string): Buffer => Buffer.from(value, "latin1");
export const write = (bytes: Buffer | string): Step => ({
  do: "write",
  bytes: typeof bytes === "string" ? text(bytes) : bytes,
});
/** More than any limit that ends a connection; without such a limit the caller stops reading. */
const FLOOD_MAX_BYTES = 8 * 1024 * 1024;
export const flood = (bytes: Buffer | string, maxBytes = FLOOD_MAX_BYTES): Step => ({
  do: "flood",
  bytes: typeof bytes === "string" ? text(bytes) : bytes,
  maxBytes,
});
export const STALL: Step = { do: "stall" };
export const END: Step = { do: "end" };
export const RESET: Step = { do: "reset" };

export interface Asked {
  readonly key: string | undefined;
  readonly generation: number;
}

/** The response of our daemon. */
export function honestly(honest: Honest, asked: Asked): readonly Step[] {
  return [write(honestBytes(honest, asked)), ...(STAYS.has(honest.kind) ? [] : [STALL])];
}

const STAYS: ReadonlySet<Honest["kind"]> = new Set(["json", "bytes"]);

export function honestBytes(honest: Honest, asked: Asked): Buffer {
  const { kind, body } = honest;
  switch (kind) {
    case "json":
    case "bytes":
      return Buffer.concat([text(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`), body]);
    case "frames":
    case "lines":
      return Buffer.concat([
        text("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        chunk(body),
        text(kind === "frames" ? "0\r\n\r\n" : ""),
      ]);
    case "hold":
      return Buffer.concat([
        text("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        chunk(text(`${JSON.stringify({ pid: 1, generation: asked.generation, run: "r" })}\n`)),
      ]);
    case "terminal":
      return Buffer.concat([switching(asked), terminalFrames()]);
    case "upload":
      return Buffer.concat([
        text("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: sandlot-tunnel\r\n\r\n"),
        text("{}"),
      ]);
    case "tunnel":
      return text("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: sandlot-tunnel\r\n\r\n");
    case "switch":
      return Buffer.concat([switching(asked), webSocketFrame(1, text("hello"))]);
  }
}

export function switching({ key = "" }: Asked): Buffer {
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return text(
    `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
  );
}

export function terminalFrames(): Buffer {
  return Buffer.concat([
    webSocketFrame(1, text('{"type":"position","offset":0,"droppedBytes":0}')),
    webSocketFrame(2, text("$ ")),
    webSocketFrame(1, text('{"type":"exit","exitCode":0,"signal":null}')),
    webSocketFrame(8, Buffer.from([0x03, 0xe8])),
  ]);
}

export function webSocketFrame(
  opcode: number,
  payload: Buffer,
  { first = 0x80 | opcode, announced = payload.length } = {},
): Buffer {
  if (announced < 126) return Buffer.concat([Buffer.from([first, announced]), payload]);
  const header = Buffer.alloc(10);
  header.writeUInt8(first, 0);
  header.writeUInt8(127, 1);
  header.writeBigUInt64BE(BigInt(announced), 2);
  return Buffer.concat([header, payload]);
}

export function chunk(body: Buffer): Buffer {
  return Buffer.concat([text(`${body.length.toString(16)}\r\n`), body, text("\r\n")]);
}

/** The length of an honest response: each byte is a place to break off. */
export function honestLength(honest: Honest): number {
  return honestBytes(honest, { key: "dGhlIHNhbXBsZSBub25jZQ==", generation: 1 }).length;
}

/** The honest response up to a byte, then the end of the connection. */
export function truncated(honest: Honest, asked: Asked, at: number, end: "end" | "reset" | "stall"): readonly Step[] {
  const bytes = honestBytes(honest, asked);
  return [write(bytes.subarray(0, at % (bytes.length + 1))), { do: end }];
}

export const ENDS: readonly Step[] = [END, RESET, STALL];

export type Trick = (chance: Chance, honest: Honest, asked: Asked) => readonly Step[];
