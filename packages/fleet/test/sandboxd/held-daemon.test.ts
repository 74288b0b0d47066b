/** The held connection, against a daemon that greets in every way an HTTP server may. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { renewReplySchema } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ConnectionLost } from "../../src/sandboxd/connection-pool.ts";
import { openHold } from "../../src/sandboxd/held-daemon.ts";
import { Wire } from "../../src/sandboxd/wire.ts";

const GREETING = `${JSON.stringify({ pid: 7, generation: 3, run: "grün" })}\n`;
const bytes = Buffer.from(GREETING).toString("latin1");
const PLAIN = `HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n${bytes}`;
const chunk = (content: string) => `${content.length.toString(16)}\r\n${content}\r\n`;
const CHUNKED_HEAD = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const CHUNKED = CHUNKED_HEAD + chunk(bytes);

let directory: string;
let server: Server;
let wire: Wire;
let sockets: Socket[];
let onAsked: (socket: Socket, asked: string) => void;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "sl-hold-"));
  sockets = [];
  server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.on("data", (asked) => onAsked(socket, asked.toString("latin1")));
  });
  const path = join(directory, "d");
  await new Promise<void>((resolve) => server.listen(path, resolve));
  wire = new Wire({ address: { path }, sandboxId: "s", generation: 3, token: "t" });
});
afterEach(async () => {
  wire.close();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true, force: true });
});

const greeting = (text: string, size = text.length) => {
  onAsked = async (socket) => {
    for (let at = 0; at < text.length; at += size) {
      socket.write(text.slice(at, at + size), "latin1");
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
};

describe("a greeting", () => {
  const inTwoChunks = CHUNKED_HEAD + chunk(bytes.slice(0, 9)) + chunk(bytes.slice(9));
  it.each([
    ["plain, in one piece", PLAIN, PLAIN.length],
    ["plain, byte by byte", PLAIN, 1],
    ["in a chunk", CHUNKED, CHUNKED.length],
    ["in a chunk, byte by byte", CHUNKED, 1],
    ["in two chunks", inTwoChunks, inTwoChunks.length],
    ["in two chunks, byte by byte", inTwoChunks, 1],
    ["in a chunk with an extension", CHUNKED.replace("\r\n{", ";a=b\r\n{"), 10],
  ])("is read: %s", async (_, text, size) => {
    greeting(text, size);
    const hold = await openHold(wire);
    expect(hold).toMatchObject({ daemonPid: 7, run: "grün" });
    expect(hold.ended()).toBe("no");
    hold.close();
  });

  it.each([
    ["of another generation", PLAIN.replace(":3,", ":4,")],
    ["of nonsense", "HTTP/1.1 200 OK\r\n\r\nwhat\n"],
    ["without an end", `HTTP/1.1 200 OK\r\n\r\n${"x".repeat(5_000)}`],
  ])("%s is refused, and its connection ended", async (_, text) => {
    greeting(text);
    await expect(openHold(wire)).rejects.toMatchObject({ code: "bad_sandbox_response" });
    await expect.poll(() => sockets[0]?.destroyed).toBe(true);
  });

  it.each([
    ["that never comes", "HTTP/1.1 200 OK\r\n\r\n", true],
    ["that is cut off", PLAIN.slice(0, -3), true],
    ["in chunks that are none", `${CHUNKED_HEAD}nonsense\r\n`, false],
    ["in chunks that end", `${CHUNKED_HEAD}0\r\n\r\n`, false],
  ])("%s is a lost connection", async (_, text, ends) => {
    onAsked = (socket) => (ends ? socket.end(text, "latin1") : socket.write(text, "latin1"));
    await expect(openHold(wire)).rejects.toBeInstanceOf(ConnectionLost);
  });

  it("is not waited for by a caller that has given up", async () => {
    const controller = new AbortController();
    onAsked = (socket) => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n{");
      setTimeout(() => controller.abort(new Error("enough")), 20);
    };
    await expect(openHold(wire, controller.signal)).rejects.toThrow("enough");
    await expect.poll(() => sockets[0]?.destroyed).toBe(true);
  });
});

describe("a hold", () => {
  it.each([
    ["closes its connection", (socket: Socket) => socket.end()],
    ["breaks it", (socket: Socket) => socket.destroy()],
    ["ends its answer and keeps the connection", (socket: Socket) => socket.write("0\r\n\r\n")],
  ])("ends there when the daemon %s", async (_, end) => {
    greeting(CHUNKED);
    const hold = await openHold(wire);
    if (sockets[0] !== undefined) end(sockets[0]);
    await hold.closed;
    expect(hold.ended()).toBe("there");
    hold.close();
    expect(hold.ended()).toBe("there");
  });

  it("ends here when we close it, and not when other connections are closed or its caller's signal fires", async () => {
    const controller = new AbortController();
    greeting(CHUNKED);
    const hold = await openHold(wire, controller.signal);
    wire.close();
    controller.abort();
    sockets[0]?.write(chunk("whatever"));
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(hold.ended()).toBe("no");
    hold.close();
    expect(hold.ended()).toBe("here");
    await hold.closed;
    expect(hold.ended()).toBe("here");
    await expect.poll(() => sockets[0]?.destroyed).toBe(true);
  });

  it("that is refused says why", async () => {
    const error = { code: "stale_generation", message: "m", retryable: false, requestId: "r" };
    const details = { sandboxId: "s", generation: 3, currentGeneration: 4 };
    const body = JSON.stringify({ error: { ...error, details } });
    onAsked = (socket) => socket.write(`HTTP/1.1 409 Conflict\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    await expect(openHold(wire)).rejects.toMatchObject({ code: "stale_generation" });
  });

  it("is asked for again, once, when a kept connection had ended", async () => {
    const renewed = 'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"run":"r"}';
    onAsked = (socket) => socket.write(renewed);
    await wire.post(renewReplySchema, "/sandlot/renew", {});
    onAsked = (socket) => (socket === sockets[0] ? socket.destroy() : socket.write(CHUNKED, "latin1"));
    const hold = await openHold(wire);
    expect(sockets).toHaveLength(2);
    hold.close();
    onAsked = (socket) => socket.destroy();
    await expect(openHold(wire)).rejects.toBeInstanceOf(ConnectionLost);
    expect(sockets).toHaveLength(3);
  });
});
