/** How the connections to a daemon report what the pool throws (`connection-pool.test.ts`), against a scripted peer. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { ConnectionLost, Connections, type PoolRequest } from "../../src/sandboxd/connections.ts";

let directory: string;
let server: Server;
let connections: Connections;
/** Every connection that was ever made, in order. */
let sockets: Socket[];
/** The peer's reaction to each received piece. */
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
const send = (request: Partial<PoolRequest> = {}, at = path()) =>
  connections.send(
    { path: at },
    { head: "GET / HTTP/1.1\r\n\r\n", body: undefined, responseMaxBytes: 1_000, signal: undefined, ...request },
  );
const textOf = async () => (await send()).body.toString();

it("keeps a connection for the next request, and forgets it when the daemon ends", async () => {
  expect(await textOf()).toBe("fine");
  expect(await textOf()).toBe("fine");
  expect(sockets.length).toBe(1);
  expect(connections.isEmpty).toBe(false);
  sockets[0]?.end();
  await expect.poll(() => connections.isEmpty).toBe(true);
});

it("gives each request a connection of its own where none are kept", async () => {
  connections = new Connections({ keep: false });
  await send();
  await send();
  expect(sockets.length).toBe(2);
  await expect.poll(() => connections.isEmpty).toBe(true);
});

it("returns a refusal like any response", async () => {
  onPiece = (_, socket) => void socket.write("HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n");
  expect(await send()).toEqual({ status: 409, body: Buffer.alloc(0) });
});

const broken = {
  "that is cut off": (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
  "that never comes": (socket: Socket) => socket.destroy(),
  "that is not of the expected form": (socket: Socket) => socket.write("SSH-2.0\r\n\r\n"),
};
it.each(Object.entries(broken))("a response %s is a lost connection, which is not used again", async (_, answer) => {
  onPiece = (_piece, socket) => void answer(socket);
  await expect(send()).rejects.toBeInstanceOf(ConnectionLost);
  onPiece = (_piece, socket) => void socket.write(ok("fine"));
  expect(await textOf()).toBe("fine");
  expect(sockets.length).toBe(2);
});

it("a response of another form is never a stale connection: the daemon may have acted", async () => {
  await send();
  onPiece = (_, socket) => void socket.write("SSH-2.0\r\n\r\n");
  await expect(send()).rejects.toMatchObject({ name: "ConnectionLost", isStaleConnection: false });
});

it("a response over its limit is refused as bad, before it is held", async () => {
  onPiece = (_, socket) => void socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n");
  await expect(send()).rejects.toMatchObject({ code: "bad_sandbox_response" });
});

it("a socket that is missing is a lost connection that says so", async () => {
  const nowhere = send({}, join(directory, "none"));
  await expect(nowhere).rejects.toMatchObject({ name: "ConnectionLost", cause: { code: "ENOENT" } });
});
