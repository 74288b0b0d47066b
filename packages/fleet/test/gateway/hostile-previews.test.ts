/**
 * Previews of servers that respond wrongly on purpose: the gateway goes on, and the viewer of the preview gets a 502.
 */

import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { richBackend } from "./support/rich-backend.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let inner: Server;
let port: number;
let answer: (socket: Socket, head: string) => void;
let url: URL;
let token: string;

beforeAll(async () => {
  stage = await openStage({ enrich: richBackend });
  alice = await stage.user("alice");
  inner = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (head) => answer(socket, head.toString("latin1")));
  });
  await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
  port = (inner.address() as AddressInfo).port;
  await alice.ask(200, "POST", "/v1/threads/p/exec", { json: { command: "true" } });
  const link = await alice.ask<{ url: string }>(201, "POST", `/v1/threads/p/ports/${port}/links`, {
    json: { ttlMs: 600_000 },
  });
  url = new URL(link.url);
  token = url.searchParams.get("sandlot-link") ?? "";
});
afterAll(async () => {
  await stage.done();
  await new Promise((resolve) => inner.close(resolve));
});

interface Answer {
  readonly status: number;
  readonly reason: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

function ask(path = "/", headers: Record<string, string> = {}): Promise<Answer> {
  const { port: at } = new URL(stage.gateway.previewUrl);
  return new Promise((resolve, reject) => {
    const all = { host: url.host, cookie: `sandlot-link=${token}`, ...headers };
    const sent = httpRequest({ host: "127.0.0.1", port: at, path, headers: all }, (reply) => {
      let body = "";
      reply.on("data", (piece) => (body += piece));
      reply.on("error", reject);
      reply.on("end", () =>
        resolve({ status: reply.statusCode ?? 0, reason: reply.statusMessage ?? "", headers: reply.headers, body }),
      );
    });
    sent.on("error", reject).end();
  });
}

/** The response on a bare connection that requests a WebSocket. */
function upgrade(path = "/ws", headers = `Cookie: sandlot-link=${token}\r\n`): Promise<string> {
  const { port: at } = new URL(stage.gateway.previewUrl);
  return new Promise((resolve) => {
    const socket = connect(Number(at), "127.0.0.1");
    let text = "";
    const lines = `GET ${path} HTTP/1.1\r\nHost: ${url.host}\r\n${headers}Connection: Upgrade\r\nUpgrade: websocket\r\n`;
    socket.write(`${lines}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n`);
    socket.on("data", (piece) => (text += piece.toString("latin1")));
    socket.on("error", () => {});
    socket.on("close", () => resolve(text));
  });
}

const body = (head: string) => (socket: Socket) => void socket.end(`${head}\r\nContent-Length: 2\r\n\r\nhi`);

describe("a previewed server", () => {
  test.each([
    ["status 000", "HTTP/1.1 000 OK"],
    ["status 999", "HTTP/1.1 999 OK"],
    ["status 600", "HTTP/1.1 600 OK"],
    ["no HTTP", "SSH-2.0-OpenSSH"],
    ["a bad header", "HTTP/1.1 200 OK\r\nx: a\x01b"],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5"],
    ["switching protocols unasked", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x"],
    ["headers without end", `HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(20_000)}x: y`],
  ])("with %s is a 502 that the gateway words itself", async (_, head) => {
    answer = body(head);
    const got = await ask();
    expect([got.status, got.reason]).toEqual([502, "Bad Gateway"]);
    expect(JSON.parse(got.body).error.code).toBe("bad_sandbox_response");
    expect((await fetch(`${stage.gateway.url}/healthz`)).status).toBe(200);
  });

  test("with a bad reason phrase is answered with the status's own", async () => {
    answer = body("HTTP/1.1 200 O\x01K");
    expect(await ask()).toMatchObject({ status: 200, reason: "OK", body: "hi" });
  });

  test("that says 100 and nothing more, over and over, is a 502", async () => {
    answer = (socket) => void socket.write("HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000));
    expect((await ask()).status).toBe(502);
  });

  test("that refuses or garbles a WebSocket does not reach the caller raw", async () => {
    answer = body("HTTP/1.1 403 No\x01pe\r\nSet-Cookie: sandlot-link=forged");
    const refused = await upgrade();
    expect(refused).toMatch(/^HTTP\/1\.1 403 Forbidden\r\n/);
    expect(refused).not.toContain("forged");
    expect(refused).toMatch(/hi$/);
    answer = body("HTTP/1.1 000 x");
    expect(await upgrade()).toMatch(/^HTTP\/1\.1 502 Bad Gateway\r\n/);
    answer = (socket) =>
      void socket.end(
        "HTTP/1.1 101 \x01\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSet-Cookie: sandlot-link=forged\r\nX-A: 1\r\n\r\nframes",
      );
    const joined = await upgrade();
    expect(joined).toMatch(/^HTTP\/1\.1 101 Switching Protocols\r\n/);
    expect(joined).not.toContain("forged");
    expect(joined.toLowerCase()).toContain("x-a: 1");
    expect(joined).toMatch(/\r\n\r\nframes$/);
    answer = (socket) => void socket.destroy();
    expect(await upgrade()).toMatch(/^HTTP\/1\.1 (502|503) /);
  });

  test("never sees the link: not in an address, a header or a cookie, of a request or a WebSocket", async () => {
    const seen: string[] = [];
    answer = (socket, head) => {
      seen.push(head);
      body("HTTP/1.1 200 OK")(socket);
    };
    await ask(`/a?x=1&sandlot-link=${token}&sandlot-link=${token}&y=2`, { "x-sandlot-link": token });
    await upgrade(`/b?x=1&sandlot-link=${token}`, "");
    await upgrade("/c", `X-Sandlot-Link: ${token}\r\n`);
    expect(seen.map((head) => head.split(" ")[1])).toEqual(["/a?x=1&y=2", "/b?x=1", "/c"]);
    for (const head of seen) expect(head).not.toContain(token.slice(0, 20));
  });
});
