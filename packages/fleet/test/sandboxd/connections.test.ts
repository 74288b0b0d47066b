/**
 * Questions on kept connections, against a peer that answers whatever a test wants: a daemon runs beside code that nobody
 * trusts.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ConnectionLost, Connections, type PoolRequest } from "../../src/sandboxd/connections.ts";

let directory: string;
let server: Server;
let connections: Connections;
/** Every connection that was ever made, in order. */
let sockets: Socket[];
/** What the peer does with each piece that it gets. */
let onPiece: (piece: string, socket: Socket) => void;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "sl-connections-"));
  sockets = [];
  onPiece = (_, socket) => void socket.write(ok("fine"));
  server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.on("data", (piece) => onPiece(piece.toString("latin1"), socket));
  });
  await new Promise<void>((resolve) => server.listen(path(), resolve));
  connections = new Connections();
});

afterEach(async () => {
  connections.destroy();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true, force: true });
});

const path = () => join(directory, "d");
const ok = (body: string, more = "") => `HTTP/1.1 200 OK\r\n${more}content-length: ${body.length}\r\n\r\n${body}`;
const ask = (question: Partial<PoolRequest> = {}) =>
  connections.send(
    { path: path() },
    { head: "GET / HTTP/1.1\r\n\r\n", body: undefined, responseMaxBytes: 1_000, signal: undefined, ...question },
  );
const textOf = async (question?: Partial<PoolRequest>) => (await ask(question)).body.toString();

describe("a question", () => {
  it("is asked on the connection that was used last, and two at once on two", async () => {
    expect(await textOf()).toBe("fine");
    expect(await textOf()).toBe("fine");
    expect(sockets.length).toBe(1);
    await Promise.all([ask(), ask()]);
    expect(sockets.length).toBe(2);
  });

  it("is sent whole, with a short body and with a long one", async () => {
    for (const length of [0, 10, 200_000]) {
      let got = "";
      const body = Buffer.alloc(length, "x");
      const head = `POST / HTTP/1.1\r\ncontent-length: ${length}\r\n\r\n`;
      onPiece = (piece, socket) => {
        got += piece;
        if (got.length === head.length + length) socket.write(ok("got it"));
      };
      expect(await textOf({ head, body })).toBe("got it");
      expect(got).toBe(head + body.toString());
    }
  });

  it("that is given up closes its connection, and rejects with the reason", async () => {
    const controller = new AbortController();
    onPiece = () => controller.abort(new Error("enough"));
    await expect(ask({ signal: controller.signal })).rejects.toThrow("enough");
    await expect.poll(() => sockets[0]?.destroyed || sockets[0]?.readableEnded).toBe(true);
    onPiece = (_, socket) => void socket.write(ok("new"));
    expect(await textOf()).toBe("new");
    expect(sockets.length).toBe(2);
  });

  it("has a connection of its own where none are kept", async () => {
    connections = new Connections({ keep: false });
    await ask();
    await ask();
    expect(sockets.length).toBe(2);
    await expect.poll(() => connections.isEmpty).toBe(true);
  });
});

describe("an answer", () => {
  it("is the same in one piece, in two, and in single bytes", async () => {
    const whole = ok("answer", "x-more: 1\r\n");
    for (const size of [whole.length, 20, 1]) {
      onPiece = async (_, socket) => {
        for (let at = 0; at < whole.length; at += size) {
          socket.write(whole.slice(at, at + size));
          await new Promise((resolve) => setImmediate(resolve));
        }
      };
      expect(await ask()).toMatchObject({ status: 200, body: Buffer.from("answer") });
    }
    expect(sockets.length).toBe(1);
  });

  it("may be empty, and may be a refusal", async () => {
    onPiece = (_, socket) => void socket.write("HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n");
    expect(await ask()).toEqual({ status: 409, body: Buffer.alloc(0) });
  });

  it("that announces the end of its connection is the last on it", async () => {
    onPiece = (_, socket) => void socket.write(ok("bye", "Connection: close\r\n"));
    expect(await textOf()).toBe("bye");
    expect(await textOf()).toBe("bye");
    expect(sockets.length).toBe(2);
  });

  const broken = {
    "that is cut off": (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
    "that never comes": (socket: Socket) => socket.destroy(),
    "without a length": (socket: Socket) =>
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    "that is no HTTP": (socket: Socket) => socket.write("SSH-2.0\r\n\r\n"),
    "with more than it announced": (socket: Socket) => socket.write(`${ok("four")}more`),
    "whose head has no end": (socket: Socket) => socket.write(`HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(10_000)}`),
  };
  it.each(Object.entries(broken))("%s is lost, and nothing more is asked there", async (_, answer) => {
    onPiece = (_piece, socket) => void answer(socket);
    await expect(ask()).rejects.toBeInstanceOf(ConnectionLost);
    onPiece = (_piece, socket) => void socket.write(ok("fine"));
    expect(await textOf()).toBe("fine");
    expect(sockets.length).toBe(2);
  });

  it("that is longer than it may be is refused before it is held", async () => {
    onPiece = (_, socket) => void socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n");
    await expect(ask()).rejects.toMatchObject({ code: "bad_sandbox_response" });
  });

  it("that nobody has asked for closes the connection", async () => {
    await ask();
    sockets[0]?.write(ok("for the next one"));
    await expect.poll(() => connections.isEmpty).toBe(true);
    onPiece = (_, socket) => void socket.write(ok("mine"));
    expect(await textOf()).toBe("mine");
  });
});

describe("a peer that ends", () => {
  it("is forgotten while nothing is asked", async () => {
    await ask();
    expect(connections.isEmpty).toBe(false);
    sockets[0]?.end();
    await expect.poll(() => connections.isEmpty).toBe(true);
  });

  it("that is not there is lost, and says how", async () => {
    const nowhere = connections.send(
      { path: join(directory, "none") },
      { head: "GET / HTTP/1.1\r\n\r\n", body: undefined, responseMaxBytes: 1, signal: undefined },
    );
    await expect(nowhere).rejects.toMatchObject({ name: "ConnectionLost", cause: { code: "ENOENT" } });
  });
});
