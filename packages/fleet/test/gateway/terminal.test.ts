/** The terminal's WebSocket: bytes, size, reattaching, flow control, and authorisation. */

import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { richBackend } from "./support/rich-backend.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;

beforeAll(async () => {
  stage = await openStage({ enrich: richBackend });
  alice = await stage.user("alice");
});
afterAll(() => stage.done());

interface Session {
  readonly socket: WebSocket;
  bytes: string;
  readonly notices: Record<string, unknown>[];
  closed: number | null;
}

async function open(
  path: string,
  options: { headers?: Record<string, string>; protocols?: string[] } = {},
): Promise<Session> {
  const headers = options.headers ?? { authorization: `Bearer ${alice.key}` };
  const socket = new WebSocket(`${stage.gateway.url.replace("http", "ws")}${path}`, options.protocols ?? [], {
    headers,
  });
  const session: Session = { socket, bytes: "", notices: [], closed: null };
  socket.on("message", (data, isBinary) => {
    if (isBinary) session.bytes += String(data);
    else session.notices.push(JSON.parse(String(data)));
  });
  socket.on("close", (code) => (session.closed = code));
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve).once("error", reject);
    socket.once("unexpected-response", (_request, response) => {
      response.resume();
      reject(new Error(`answered ${response.statusCode}`));
    });
  });
  return session;
}

describe("a terminal", () => {
  test("passes bytes, knows its size, and says how its program ended", async () => {
    const one = await open("/v1/threads/t/terminal?columns=100&rows=30");
    await expect.poll(() => one.notices[0]).toMatchObject({ type: "ack", offset: 0 });
    one.socket.send(Buffer.from("hello"));
    await expect.poll(() => one.bytes).toBe("hello");
    one.socket.send(Buffer.from("size"));
    await expect.poll(() => one.bytes).toBe("hello100x30\r\n");
    one.socket.send(JSON.stringify({ type: "resize", columns: 120, rows: 40 }));
    one.socket.send(Buffer.from("size"));
    await expect.poll(() => one.bytes).toContain("120x40");
    one.socket.send(Buffer.from("exit 3"));
    await expect.poll(() => one.notices.at(-1)).toEqual({ type: "exit", exitCode: 3, signal: null });
    await expect.poll(() => one.closed).toBe(1000);
  });

  test("outlives a connection", async () => {
    const one = await open("/v1/threads/t/terminal?terminalId=kept");
    one.socket.send(Buffer.from("before"));
    await expect.poll(() => one.bytes).toBe("before");
    one.socket.terminate();
    const { terminals } = await alice.ask<{ terminals: { terminalId: string }[] }>(
      200,
      "GET",
      "/v1/threads/t/terminals",
    );
    expect(terminals.map(({ terminalId }) => terminalId)).toEqual(["kept"]);
    const two = await open("/v1/threads/t/terminal?terminalId=kept&offset=3");
    await expect.poll(() => two.bytes).toBe("ore");
    await alice.ask(204, "DELETE", "/v1/threads/t/terminals/kept");
    await expect.poll(() => two.closed).toBe(1000);
  });

  test("is held back by a client that acknowledges nothing more", async () => {
    const one = await open("/v1/threads/t/terminal");
    one.socket.send(JSON.stringify({ type: "ack", bytes: 0 }));
    one.socket.send(Buffer.from("flood 1000000"));
    await expect.poll(() => one.bytes.length).toBeGreaterThan(256 * 1024);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(one.bytes.length).toBeLessThan(400 * 1024);
    one.socket.send(JSON.stringify({ type: "ack", bytes: 1_000_000 }));
    await expect.poll(() => one.bytes.length).toBe(1_000_000);
    one.socket.close();
  });

  test("is refused like any other request", async () => {
    await expect(open("/v1/threads/t/terminal", { headers: {} })).rejects.toThrow("answered 401");
    const origin = { authorization: `Bearer ${alice.key}`, origin: "https://evil.example" };
    await expect(open("/v1/threads/t/terminal", { headers: origin })).rejects.toThrow("answered 403");
    await expect(open("/v1/threads/t/terminal?columns=x")).rejects.toThrow("answered 422");
    await expect(open("/v1/threads/..%2F/terminal")).rejects.toThrow("answered 422");
    await alice.ask(422, "GET", "/v1/threads/t/terminal");
    const bad = await open("/v1/threads/t/terminal");
    bad.socket.send("no json");
    await expect.poll(() => bad.closed).toBe(1008);
  });

  test("whose handshake fails holds nothing", async () => {
    const { port, hostname, host } = new URL(stage.gateway.url);
    const socket = connect(Number(port), hostname);
    socket.write(
      `GET /v1/threads/handshake/terminal HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${alice.key}\r\n` +
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: no\r\n\r\n",
    );
    const text = await new Promise<string>((resolve) => {
      let received = "";
      socket.on("data", (piece) => (received += piece));
      socket.on("close", () => resolve(received));
    });
    expect(text).toMatch(/^HTTP\/1.1 400/);
    const state = async () => (await stage.fleet.list()).find(({ thread }) => thread === "handshake")?.state;
    await expect.poll(state).toBe("parked");
  });

  test("takes the key of a browser, which cannot send headers", async () => {
    const protocols = ["sandlot.v1", `sandlot.key.${alice.key}`];
    const one = await open("/v1/threads/t/terminal", { headers: {}, protocols });
    expect(one.socket.protocol).toBe("sandlot.v1");
    one.socket.close();
  });

  test("asks to reconnect when the gateway is stopped", async () => {
    const other = await openStage({ enrich: richBackend });
    const bob = await other.user("bob");
    const socket = new WebSocket(`${other.gateway.url.replace("http", "ws")}/v1/threads/t/terminal`, [], {
      headers: { authorization: `Bearer ${bob.key}` },
    });
    await new Promise((resolve) => socket.once("open", resolve));
    const closed = new Promise((resolve) => socket.once("close", resolve));
    await other.done();
    expect(await closed).toBe(1012);
  });
});
