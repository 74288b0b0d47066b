/** Request bodies and responses. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import { checkJsonFields } from "./request-fields.ts";

/** Of JSON, and of a command's stdin. Larger input belongs in a file. */
const BODY_MAX_BYTES = 64 * 1024 * 1024;
const NEWLINE = 0x0a;
const PORT_MAX = 65_535;

export function readBody(
  request: IncomingMessage,
  maxBytes = BODY_MAX_BYTES,
  tooLarge: (problem: string) => Error = (problem) => invalid("body", problem),
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      // The rest is read and dropped, so that the connection stays usable.
      if (size <= maxBytes) chunks.push(chunk);
    });
    request.on("end", () => {
      const [only] = chunks;
      if (size > maxBytes) reject(tooLarge(`it has more than ${maxBytes} bytes`));
      else resolve(chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks));
    });
    request.on("error", reject);
  });
}

/** A JSON object of fields that the route knows; what they hold is for the caller to check. */
export async function readJson(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const fields = parseObject(await readBody(request));
  checkJsonFields(request, fields);
  return fields;
}

/** One JSON line, and the bytes after it. */
export async function readLineAndBytes(
  request: IncomingMessage,
): Promise<{ line: Readonly<Record<string, unknown>>; bytes: Buffer }> {
  const body = await readBody(request);
  const end = body.indexOf(NEWLINE);
  const line = parseObject(end < 0 ? body : body.subarray(0, end));
  checkJsonFields(request, line);
  return { line, bytes: end < 0 ? Buffer.alloc(0) : body.subarray(end + 1) };
}

export function sendJson(response: ServerResponse, value: unknown, status = 200): void {
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { "content-type": "application/json", "content-length": body.length });
  response.end(body);
}

export function sendBytes(response: ServerResponse, bytes: Uint8Array): void {
  response.writeHead(200, { "content-type": "application/octet-stream", "content-length": bytes.length });
  response.end(bytes);
}

/** A response that has begun cannot become an error: it is cut, so that its reader sees it as incomplete. */
export function sendError(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const known = error instanceof SandlotError ? error : new SandlotError("internal", { problem: describe(error) });
  sendJson(response, { error: known.toJSON() }, known.status);
}

/** The same for a connection that was to be taken over. */
export function refuse(socket: Duplex, error: unknown): void {
  if (socket.destroyed) return;
  const known = error instanceof SandlotError ? error : new SandlotError("internal", { problem: describe(error) });
  const body = JSON.stringify({ error: known.toJSON() });
  const head = `HTTP/1.1 ${known.status} Refused\r\nConnection: close\r\nContent-Type: application/json\r\n`;
  socket.end(`${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}

export function text(fields: Readonly<Record<string, unknown>>, name: string): string {
  const value = fields[name];
  if (typeof value !== "string") throw invalid(name, "it is not a string");
  return value;
}

export function flag(fields: Readonly<Record<string, unknown>>, name: string): boolean {
  return fields[name] === true;
}

/** An integer of at least `least`; `undefined` when absent. */
export function integer(fields: Readonly<Record<string, unknown>>, name: string, least: number): number | undefined {
  const value = fields[name];
  if (value === undefined || value === null) return undefined;
  const number = typeof value === "string" && value !== "" ? Number(value) : value;
  if (typeof number !== "number" || !Number.isInteger(number) || number < least)
    throw invalid(name, `it is not a whole number from ${least}`);
  return number;
}

export function duration(fields: Readonly<Record<string, unknown>>, name: string): number {
  const value = fields[name];
  if (typeof value === "number" && Number.isFinite(value) && value >= 0) return value;
  throw invalid(name, "it is not a duration");
}

export function checkPort(fields: Readonly<Record<string, unknown>>): number {
  const port = integer(fields, "port", 1) ?? 0;
  if (port >= 1 && port <= PORT_MAX) return port;
  throw invalid("port", `it is not a port from 1 to ${PORT_MAX}`);
}

/** At most the limit. */
export function limit(fields: Readonly<Record<string, unknown>>, standard: number, max = standard): number {
  return Math.min(integer(fields, "maxResults", 1) ?? standard, max);
}

export function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}

function parseObject(bytes: Buffer): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString("utf8"));
  } catch {
    throw invalid("body", "it is not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalid("body", "it is not an object");
  return value as Readonly<Record<string, unknown>>;
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
