/**
 * Responses to input that never became a request: not HTTP, endless headers, or nothing for too long. They have the
 * same shape as all errors and are written to the bare connection, which is then closed.
 */

import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { SandlotError } from "@sandlot/contract";
import type { GatewaySettings } from "../config/gateway-settings.ts";
import type { World } from "../world/world.ts";
import { errorReply } from "./errors.ts";

export type MalformedHandler = (error: Error & { readonly code?: string }, socket: Socket) => void;

export function malformedHandler(settings: GatewaySettings, world: World): MalformedHandler {
  return (error, socket) => {
    if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
    const { status, told } = answerTo(error.code, settings);
    const body = JSON.stringify(errorReply(told, world.randomHex(8)));
    const head = [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      "Connection: close",
      "Content-Type: application/json; charset=utf-8",
      `Content-Length: ${Buffer.byteLength(body)}`,
      "Cache-Control: no-store",
      "X-Content-Type-Options: nosniff",
    ];
    socket.end(`${head.join("\r\n")}\r\n\r\n${body}`, () => socket.destroy());
  };
}

function answerTo(code: string | undefined, settings: GatewaySettings): { status: number; told: SandlotError } {
  const { headerMaxBytes: maxBytes, headersTimeoutMs: timeoutMs } = settings;
  if (code === "HPE_HEADER_OVERFLOW")
    return { status: 431, told: new SandlotError("payload_too_large", { what: "The head of the request", maxBytes }) };
  if (code === "ERR_HTTP_REQUEST_TIMEOUT")
    return { status: 408, told: new SandlotError("wait_timeout", { waitedFor: "a request", timeoutMs }) };
  return { status: 400, told: new SandlotError("invalid_request", { field: "request", problem: "it is not HTTP" }) };
}
