/**
 * The internet of a stage, in its own network namespace: servers on every address of `OUTSIDE`. Started by
 * `machine.ts`, with its settings on stdin; says "ready" when everything listens.
 */

import { createHash } from "node:crypto";
import { createSocket as createDatagramSocket } from "node:dgram";
import { readFileSync } from "node:fs";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { createServer as createTcpServer } from "node:net";
import { WebSocketServer } from "ws";
import { NAMES, PORTS } from "./addresses.ts";

export interface OutsideSettings {
  /** The stage's directory for files. */
  readonly directory: string;
  readonly certificatePem: string;
  readonly keyPem: string;
  /** Served as files, below their key. */
  readonly files: Readonly<Record<string, string>>;
}

const settings = JSON.parse(readFileSync(0, "utf8")) as OutsideSettings;
const servers = [
  createHttpServer(answer).listen(PORTS.http, "::"),
  secureServer().listen(PORTS.https, "::"),
  createTcpServer((socket) => socket.on("error", () => {}).pipe(socket)).listen(PORTS.echo, "::"),
  createTcpServer({ allowHalfOpen: true }, answerAfterEnd).listen(PORTS.afterEnd, "::"),
  createTcpServer((socket) => socket.on("error", () => {}).resume()).listen(PORTS.silentHttp, "::"),
  nameServer().bind(PORTS.names, "0.0.0.0"),
];
await Promise.all(servers.map((server) => new Promise((resolve) => server.once("listening", resolve))));
process.stdout.write("ready\n");

function secureServer() {
  const server = createHttpsServer({ cert: settings.certificatePem, key: settings.keyPem }, answer);
  const sockets = new WebSocketServer({ server });
  sockets.on("connection", (socket, request) => {
    socket.send(JSON.stringify(request.headers));
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
  return server;
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? "/", "http://outside");
  const file = settings.files[decodeURIComponent(url.pathname)];
  if (file !== undefined) serve(response, file);
  else if (url.pathname === "/download") download(response, Number(url.searchParams.get("bytes")));
  else if (url.pathname === "/echo-header") echoHeader(request, response, url.searchParams);
  else if (url.pathname === "/break") breakOff(response);
  else if (url.pathname.endsWith("/info/refs") || url.pathname.startsWith("/missing")) response.writeHead(404).end();
  else describe(request, response);
}

function serve(response: ServerResponse, file: string): void {
  if (file.endsWith(".html")) response.setHeader("content-type", "text/html");
  response.end(readFileSync(file));
}

/** Received data, for the tests. */
function describe(request: IncomingMessage, response: ServerResponse): void {
  let bodyBytes = 0;
  request.on("data", (chunk: Buffer) => {
    bodyBytes += chunk.length;
  });
  request.on("end", () => {
    const { method, url, headers, rawHeaders } = request;
    const { localAddress, remotePort } = request.socket;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ method, url, headers, rawHeaders, bodyBytes, localAddress, remotePort }));
  });
}

function download(response: ServerResponse, bytes: number): void {
  response.writeHead(200, { "content-length": bytes });
  let left = bytes;
  const more = (): void => {
    while (left > 0) {
      const size = Math.min(left, 65_536);
      left -= size;
      if (!response.write(Buffer.alloc(size, "x"))) {
        response.once("drain", more);
        return;
      }
    }
    response.end();
  };
  more();
}

/** Knows the names in `NAMES`, and no others. */
function nameServer() {
  const server = createDatagramSocket("udp4");
  server.on("message", (query, { port, address }) => {
    const labels: string[] = [];
    let at = 12;
    for (let size = query[at] ?? 0; size > 0; size = query[at] ?? 0) {
      labels.push(query.toString("latin1", at + 1, at + 1 + size));
      at += size + 1;
    }
    const question = query.subarray(12, at + 5);
    const found = query.readUInt16BE(at + 1) === 1 ? NAMES[labels.join(".").toLowerCase()] : undefined;
    const known = Object.hasOwn(NAMES, labels.join(".").toLowerCase());
    const head = Buffer.from([0, 0, 0x81, known ? 0x80 : 0x83, 0, 1, 0, found ? 1 : 0, 0, 0, 0, 0]);
    query.copy(head, 0, 0, 2);
    const record = found ? [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...found.split(".").map(Number)] : [];
    server.send(Buffer.concat([head, question, Buffer.from(record)]), port, address);
  });
  return server;
}

/** Byte by byte, so that no chunk holds the whole value; also in a header. */
function echoHeader(request: IncomingMessage, response: ServerResponse, asked: URLSearchParams): void {
  const found = String(request.headers[asked.get("name") ?? ""] ?? "none");
  const value = asked.has("hashed") ? createHash("sha256").update(found).digest("hex") : found;
  response.writeHead(200, { "x-echo": value, "content-length": Buffer.byteLength(`[${value}]`) });
  for (const character of `[${value}]`) response.write(character);
  response.end();
}

function breakOff(response: ServerResponse): void {
  response.writeHead(200, { "content-length": 1_000 });
  response.write("half", () => response.destroy());
}

/** Reports how much it got, but only when the other side has ended. */
function answerAfterEnd(socket: import("node:net").Socket): void {
  let bytes = 0;
  socket.on("error", () => {});
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
  });
  socket.on("end", () => socket.end(`got ${bytes}\n`));
}
