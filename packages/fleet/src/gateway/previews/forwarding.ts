/**
 * Forwards one request, or one upgrade, to a port of a sandbox, and its response back.
 *
 * An untrusted program responds. So the gateway writes the status line itself, from a valid HTTP status; a head that is
 * invalid, late or endless is `bad_sandbox_response`; and listeners never throw.
 */

import {
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type RequestOptions,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { Duplex } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import { STREAM_LIMITS } from "../../untrusted/limits.ts";
import { readInParts } from "../../untrusted/small-reads.ts";
import type { World } from "../../world/world.ts";
import { aioAnswerHeaders, aioRequestHeaders, answerHeaders, requestHeaders, withoutLink } from "./headers.ts";

export interface Forwarded {
  readonly request: IncomingMessage;
  /** To the port. */
  readonly connection: Duplex;
  readonly port: number;
  readonly world: World;
  /** The caller has disconnected, or lost its right to stay. */
  readonly gone: AbortSignal;
  /** The origin whose pages may frame the response; `null`: nothing is said about frames. */
  readonly framedBy: string | null;
  /** Set for the AIO API: the path there. */
  readonly aioPath?: string;
}

/** Accepted interim responses (1xx). */
const EARLY_MAX = 16;

/** Resolves when the response has ended or the caller is gone. Rejects only before the response is passed on. */
export async function forwardRequest(forwarded: Forwarded, response: ServerResponse): Promise<void> {
  const { request, connection, gone } = forwarded;
  response.on("error", () => response.destroy());
  try {
    const outgoing = ask(forwarded, { connection: "close" });
    request.on("error", () => outgoing.destroy());
    request.pipe(outgoing);
    const { answer } = await answerTo(forwarded, outgoing);
    if (gone.aborted) return;
    await new Promise<void>((resolve) => {
      response.once("close", resolve);
      const headers =
        forwarded.aioPath === undefined ? answerHeaders(answer, forwarded.framedBy) : aioAnswerHeaders(answer);
      response.writeHead(answer.statusCode ?? 502, headers).flushHeaders();
      answer.once("error", () => response.destroy());
      answer.pipe(response);
    });
  } finally {
    connection.destroy();
  }
}

/** After the response bytes go both ways, until one side ends. */
export async function forwardUpgrade(forwarded: Forwarded, socket: Duplex, head: Buffer): Promise<void> {
  const { request, connection } = forwarded;
  try {
    const protocol = request.headers.upgrade ?? "websocket";
    const outgoing = ask(forwarded, { connection: "Upgrade", upgrade: protocol });
    outgoing.end();
    const { answer, inner, first } = await answerTo(forwarded, outgoing);
    const status = answer.statusCode ?? 502;
    const own = inner === undefined ? { connection: "close" } : { connection: "Upgrade", upgrade: protocol };
    socket.write(headOf(status, { ...answerHeaders(answer, null), ...own }), "latin1");
    if (inner === undefined) return await passedOn(answer, socket);
    if (first !== undefined && first.length > 0) socket.write(first);
    if (head.length > 0) inner.write(head);
    await join(socket, inner);
  } finally {
    connection.destroy();
  }
}

/** A tunnel: bytes both ways from the start, until one side ends. The request itself does not go inside. */
export async function forwardBytes(connection: Duplex, protocol: string, socket: Duplex, head: Buffer): Promise<void> {
  try {
    socket.write(headOf(101, { connection: "Upgrade", upgrade: protocol }), "latin1");
    if (head.length > 0) connection.write(head);
    await join(socket, connection);
  } finally {
    connection.destroy();
  }
}

/** Bytes both ways until one side has ended. */
function join(socket: Duplex, inner: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      socket.destroy();
      inner.destroy();
      resolve();
    };
    for (const side of [socket, inner]) side.on("error", end).once("close", end);
    // Closed before anything could listen.
    if (socket.destroyed || inner.destroyed) return end();
    socket.pipe(inner).pipe(socket);
  });
}

function passedOn(answer: IncomingMessage, socket: Duplex): Promise<void> {
  return new Promise((resolve) => {
    socket.once("close", resolve);
    answer.once("error", () => socket.destroy());
    answer.pipe(socket);
  });
}

function ask({ request, connection, port, aioPath }: Forwarded, own: OutgoingHttpHeaders): ClientRequest {
  const { method, url } = request;
  const passed = aioPath === undefined ? requestHeaders(request, port) : aioRequestHeaders(request);
  const headers = { ...passed, ...own };
  const options: RequestOptions = {
    headers,
    createConnection: () => connection as never,
    path: aioPath ?? withoutLink(url ?? "/"),
  };
  return httpRequest(method === undefined ? options : { ...options, method });
}

interface Answered {
  readonly answer: IncomingMessage;
  /** After a status of 101, with the bytes behind its head. */
  readonly inner?: Duplex;
  readonly first?: Buffer;
}

function answerTo({ world, gone, request, aioPath }: Forwarded, outgoing: ClientRequest): Promise<Answered> {
  return new Promise<Answered>((resolve, reject) => {
    readInParts(outgoing);
    let early = 0;
    const fail = (problem: string) => {
      reject(new SandlotError("bad_sandbox_response", { problem }));
      outgoing.destroy();
    };
    const onGone = () => fail("the caller has gone away");
    const isAio = aioPath !== undefined;
    const headMs = isAio ? STREAM_LIMITS.aioHeadMs : STREAM_LIMITS.previewHeadMs;
    const timer = world.timer(headMs, () => fail(`the server did not answer within ${headMs} ms`));
    gone.addEventListener("abort", onGone, { once: true });
    outgoing.on("close", () => {
      timer.cancel();
      gone.removeEventListener("abort", onGone);
      fail("the server ended the connection without an answer");
    });
    outgoing.on("error", (error) => fail(`the server's answer is no HTTP: ${error.message}`));
    outgoing.on("information", () => ++early > EARLY_MAX && fail("the server announces its answer without end"));
    outgoing.once("response", (answer) => {
      timer.cancel();
      answer.on("error", () => {});
      const status = answer.statusCode ?? 0;
      // A client of the AIO API follows every redirect, to any target the sandbox names.
      if (isAio && status >= 300 && status <= 399 && status !== 304) fail("the AIO API does not redirect");
      else if (status >= 200 && status <= 599) resolve({ answer });
      else fail(`${status} is no status`);
    });
    outgoing.once("upgrade", (answer, inner, first) => {
      timer.cancel();
      inner.on("error", () => inner.destroy());
      if (request.headers.upgrade !== undefined && answer.statusCode === 101) return resolve({ answer, inner, first });
      inner.destroy();
      fail("the server switched to another protocol without being asked");
    });
    if (gone.aborted) onGone();
  });
}

/** A head for a bare connection. Headers parsed by Node contain no line breaks. */
export function headOf(status: number, headers: OutgoingHttpHeaders): string {
  const lines = Object.entries(headers).flatMap(([name, value]) =>
    [value ?? []].flat().map((one) => `${name}: ${String(one).replace(/[\r\n\0]/g, " ")}`),
  );
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Other"}\r\n${lines.join("\r\n")}\r\n\r\n`;
}
