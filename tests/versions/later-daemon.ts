/**
 * A daemon of a later version: a real one, behind a socket that changes its responses. JSON, lines, frames and notices
 * have more fields and new words; frames, notices and changes of unknown types come in between.
 */

import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { FRAME, FRAME_HEADER_BYTES } from "@sandlot/contract";
import { WebSocketServer, WebSocket as WsClient } from "ws";
import { grow, type Json, LATER_ERROR, LATER_WORD, reword } from "./growth.ts";

export interface LaterDaemon {
  /** Paths that were requested and changed. */
  readonly changed: Map<string, number>;
  fails: boolean;
  close(): Promise<void>;
}

/** Fields that hold a word. */
const WORDS: ReadonlySet<string> = new Set(["status", "kind", "state", "output"]);
const LINE_AND_BYTES = new Set(["/sandlot/exec", "/sandlot/sessions/exec", "/sandlot/sessions/output"]);
const NEWLINE = 0x0a;

const changedText = (text: string) => JSON.stringify(grow(reword(JSON.parse(text) as Json, WORDS)));

export async function laterDaemon(path: string, behind: string): Promise<LaterDaemon> {
  const changed = new Map<string, number>();
  const state = { fails: false };
  const open = new Set<Duplex>();
  const note = (url: string | undefined) => {
    const [name = ""] = (url ?? "").split("?");
    changed.set(name, (changed.get(name) ?? 0) + 1);
    return name;
  };

  const answer = (incoming: IncomingMessage, response: ServerResponse) => {
    const name = note(incoming.url);
    if (state.fails && name !== "/sandlot/hold") {
      incoming.resume();
      return sendWhole(response, 418, Buffer.from(JSON.stringify({ error: LATER_ERROR, later: 1 })));
    }
    const { method, url, headers } = incoming;
    const asked = request({ socketPath: behind, path: url, method, headers, agent: false });
    asked.on("error", () => response.headersSent || response.destroy());
    asked.once("response", (got) => {
      const status = got.statusCode ?? 0;
      response.on("close", () => got.destroy());
      if (status === 200 && name === "/sandlot/exec/follow") return changeFrames(got, response);
      if (status === 200 && (name === "/sandlot/files/watch" || isHold(name, got)))
        return changeLines(name, got, response);
      const parts: Buffer[] = [];
      got.on("data", (part: Buffer) => parts.push(part));
      got.on("end", () => {
        const body = Buffer.concat(parts);
        if (got.headers["content-type"] === "application/json")
          return sendWhole(response, status, Buffer.from(changedText(body.toString("utf8"))));
        const end = LINE_AND_BYTES.has(name) ? body.indexOf(NEWLINE) : -1;
        if (end < 0) return sendWhole(response, status, body);
        const line = Buffer.from(`${changedText(body.toString("utf8", 0, end))}\n`);
        sendWhole(response, status, Buffer.concat([line, body.subarray(end + 1)]));
      });
    });
    const sent: Buffer[] = [];
    incoming.on("data", (part: Buffer) => sent.push(part)).on("end", () => asked.end(Buffer.concat(sent)));
  };

  const server: Server = createServer(answer);
  const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  server.on("upgrade", (incoming: IncomingMessage, socket: Duplex, head: Buffer) => {
    open.add(socket);
    const name = note(incoming.url);
    if (name !== "/sandlot/terminals/attach") return passThrough(behind, name, incoming, socket, head, open);
    sockets.handleUpgrade(incoming, socket, head, (client) => {
      const headers = Object.fromEntries(
        Object.entries(incoming.headers).filter(([one]) => one.startsWith("x-sandlot")),
      );
      const inner = new WsClient(`ws+unix:${behind}:${incoming.url}`, { headers: headers as Record<string, string> });
      const waiting: (readonly [Buffer, boolean])[] = [];
      client.on("message", (data: Buffer, binary) => {
        if (inner.readyState === inner.OPEN) inner.send(data, { binary });
        else waiting.push([data, binary]);
      });
      inner.on("open", () => {
        for (const [data, binary] of waiting) inner.send(data, { binary });
      });
      inner.on("message", (data: Buffer, binary) => {
        if (binary) return client.send(data, { binary });
        client.send(JSON.stringify({ type: "later-notice" }));
        client.send(changedText(data.toString("utf8")));
      });
      inner.on("close", () => client.close());
      client.on("close", () => inner.close());
      inner.on("error", () => client.terminate());
    });
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return {
    changed,
    get fails() {
      return state.fails;
    },
    set fails(value) {
      state.fails = value;
    },
    async close() {
      for (const socket of open) socket.destroy();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function isHold(name: string, got: IncomingMessage): boolean {
  return name === "/sandlot/hold" || (name === "/sandlot/rebind" && got.headers["content-length"] === undefined);
}

function sendWhole(response: ServerResponse, status: number, body: Buffer): void {
  response.writeHead(status, { "content-length": body.length, "x-later": "later" });
  response.end(body);
}

function changeLines(name: string, got: IncomingMessage, response: ServerResponse): void {
  let text = "";
  response.writeHead(200, { "x-later": "later" });
  got.setEncoding("utf8");
  got.on("data", (part: string) => {
    text += part;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n")) {
      response.write(`${changedText(text.slice(0, end))}\n`);
      if (name === "/sandlot/files/watch") response.write(`${JSON.stringify({ type: LATER_WORD, path: "/later" })}\n`);
      text = text.slice(end + 1);
    }
  });
  got.on("end", () => response.end());
  got.on("error", () => response.destroy());
}

function changeFrames(got: IncomingMessage, response: ServerResponse): void {
  let rest = Buffer.alloc(0);
  response.writeHead(200);
  got.on("data", (part: Buffer) => {
    rest = Buffer.concat([rest, part]);
    while (rest.length >= FRAME_HEADER_BYTES && rest.length >= FRAME_HEADER_BYTES + rest.readUInt32BE(9)) {
      const whole = FRAME_HEADER_BYTES + rest.readUInt32BE(9);
      const frame = rest.subarray(0, whole);
      rest = rest.subarray(whole);
      response.write(frameOf(99, Buffer.from("later")));
      const payload = frame.subarray(FRAME_HEADER_BYTES);
      if (frame[0] === FRAME.end)
        response.write(frameOf(FRAME.end, Buffer.from(changedText(payload.toString("utf8")))));
      else response.write(frame);
    }
  });
  got.on("end", () => response.end());
  got.on("error", () => response.destroy());
}

function frameOf(type: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(FRAME_HEADER_BYTES);
  head.writeUInt8(type, 0);
  head.writeUInt32BE(payload.length, 9);
  return Buffer.concat([head, payload]);
}

/** The response to an upload is JSON at the end; a tunnel carries another program's bytes. */
function passThrough(
  behind: string,
  name: string,
  incoming: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  open: Set<Duplex>,
): void {
  const inner: Socket = connect(behind);
  open.add(inner);
  const lines = [`${incoming.method} ${incoming.url} HTTP/1.1`];
  for (let at = 0; at < incoming.rawHeaders.length; at += 2)
    lines.push(`${incoming.rawHeaders[at]}: ${incoming.rawHeaders[at + 1]}`);
  inner.write(`${lines.join("\r\n")}\r\n\r\n`);
  inner.write(head);
  for (const one of [socket, inner]) one.on("error", () => one.destroy());
  socket.pipe(inner);
  inner.on("end", () => socket.end());
  inner.on("data", (part: Buffer) => {
    const text = part.toString("latin1");
    const at = name === "/sandlot/files/upload" ? text.search(/\{[^\r]*\}$/) : -1;
    if (at < 0) socket.write(part);
    else socket.write(text.slice(0, at) + changedText(text.slice(at)));
  });
}
