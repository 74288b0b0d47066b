/** The connection pool and the response parser, against a peer that sends any bytes of a test. */

import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ConnectionLost, ConnectionPool, type PoolRequest } from "../../src/sandboxd/connection-pool.ts";
import { systemTimer } from "../../src/world/system-world.ts";

let server: Server;
let pool: ConnectionPool;
/** Every connection that was ever made, in order. */
let sockets: Socket[];
/** The peer's reaction to each received piece. */
let onPiece: (socket: Socket, piece: string) => void;

const HEAD = "GET / HTTP/1.1\r\n\r\n";
const ok = (body: string, more = "") => `HTTP/1.1 200 OK\r\n${more}content-length: ${body.length}\r\n\r\n${body}`;

beforeEach(async () => {
  sockets = [];
  onPiece = (socket) => socket.write(ok("fine"));
  server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.on("data", (piece) => onPiece(socket, piece.toString("latin1")));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  pool = new ConnectionPool({ idleMax: 16, timer: systemTimer });
});
afterEach(async () => {
  pool.destroy();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

const address = () => ({ host: "127.0.0.1", port: (server.address() as AddressInfo).port });
const requestOf = (request: Partial<PoolRequest> = {}): PoolRequest => ({
  ...{ head: HEAD, body: undefined, responseMaxBytes: 1_000, signal: undefined },
  ...request,
});
const send = (request?: Partial<PoolRequest>) => pool.send(address(), requestOf(request));
const openStream = (request?: Partial<PoolRequest>) => pool.openStream(address(), requestOf(request));
const textOf = async (request?: Partial<PoolRequest>) => (await send(request)).body.toString();
const respond = (text: string) => {
  onPiece = (socket) => socket.write(text, "latin1");
};
const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("a request", () => {
  test("takes the connection used last; two at once have two, and at most so many are kept", async () => {
    pool = new ConnectionPool({ idleMax: 2, timer: systemTimer });
    expect(await textOf()).toBe("fine");
    expect(await textOf()).toBe("fine");
    expect(sockets).toHaveLength(1);
    await Promise.all([send(), send(), send()]);
    expect(sockets).toHaveLength(3);
    await expect.poll(() => sockets.filter((socket) => !socket.destroyed)).toHaveLength(2);
    await Promise.all([send(), send()]);
    expect(sockets).toHaveLength(3);
  });

  test("has a connection of its own where none are kept", async () => {
    pool = new ConnectionPool({ idleMax: 0 });
    await send();
    await send();
    expect(sockets).toHaveLength(2);
    await expect.poll(() => pool.isEmpty).toBe(true);
  });

  test("takes a new connection where it wants one", async () => {
    await send();
    await send({ onNewConnection: true });
    expect(sockets).toHaveLength(2);
  });

  test("is sent whole, in letters of latin1, with a short body and a long one", async () => {
    for (const length of [0, 10, 200_000]) {
      const head = `POST / HTTP/1.1\r\nname: gr\xfcn\r\ncontent-length: ${length}\r\n\r\n`;
      let got = "";
      onPiece = (socket, piece) => {
        got += piece;
        if (got.length === head.length + length) socket.write(ok("got it"));
      };
      expect(await textOf({ head, body: new Uint8Array(length).fill(120) })).toBe("got it");
      expect(got).toBe(head + "x".repeat(length));
    }
    expect(sockets).toHaveLength(1);
  });

  test("that has its response before it was sent leaves its connection unusable", async () => {
    let pieces = 0;
    onPiece = (socket) => {
      if (pieces++ > 0) return;
      socket.pause();
      socket.write("HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n");
    };
    expect((await send({ head: "POST / HTTP/1.1\r\n\r\n", body: new Uint8Array(50_000_000) })).status).toBe(413);
    expect(pool.isEmpty).toBe(true);
  });

  test("that is given up rejects with the reason and closes its connection, before and while it is sent", async () => {
    const controller = new AbortController();
    onPiece = () => controller.abort(new Error("enough"));
    await expect(send({ signal: controller.signal })).rejects.toThrow("enough");
    await expect.poll(() => sockets[0]?.destroyed).toBe(true);
    await expect(send({ signal: controller.signal })).rejects.toThrow("enough");
    expect(sockets).toHaveLength(1);
  });

  test("whose signal fires after the response ends nothing", async () => {
    const controller = new AbortController();
    await send({ signal: controller.signal });
    controller.abort();
    await turn();
    await send();
    expect(sockets).toHaveLength(1);
  });
});

describe("a response", () => {
  test("is the same in one piece, in two and in single bytes, and head and body may come apart", async () => {
    const whole = ok("answer", "x-more: 1\r\n");
    for (const size of [whole.length, whole.indexOf("answer"), 20, 1]) {
      onPiece = async (socket) => {
        for (let at = 0; at < whole.length; at += size) {
          socket.write(whole.slice(at, at + size));
          await turn();
        }
      };
      const { status, body } = await send();
      expect({ status, body: body.toString() }).toEqual({ status: 200, body: "answer" });
    }
    expect(sockets).toHaveLength(1);
  });

  test("that announces the end of its connection is the last on it", async () => {
    respond(ok("bye", "Connection: close\r\n"));
    expect(await textOf()).toBe("bye");
    expect(await textOf()).toBe("bye");
    expect(sockets).toHaveLength(2);
  });

  test.each([
    ["in chunks", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["in chunks, with a length", ok("0\r\n\r\n", "Transfer-Encoding: chunked\r\n")],
    ["without a length", "HTTP/1.1 200 OK\r\n\r\nuntil the end"],
    ["with two lengths", ok("four", "content-length: 4\r\n")],
    ["with no number for a length", "HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\nfour"],
    ["with a line that goes on in the next", ok("four", "a: b\r\n c\r\n")],
    ["that is two at once", ok("one") + ok("two")],
    ["with more than it announced", `${ok("four")}more`],
    ["without content", "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"],
    ["without content, and with some", "HTTP/1.1 204 No Content\r\n\r\nmore"],
    ["without the content that it announces", "HTTP/1.1 304\r\ncontent-length: 70\r\n\r\n"],
    ["that only continues", "HTTP/1.1 100 Continue\r\n\r\n"],
    ["that comes before another", "HTTP/1.1 103 Early Hints\r\ncontent-length: 0\r\n\r\n"],
    ["of HTTP/1.0", "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"],
    ["of something else", "SSH-2.0-OpenSSH\r\n\r\n"],
    ["whose head has no end", `HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(10_000)}`],
  ])("%s is unexpected, and its connection is not used again", async (_, text) => {
    respond(text);
    const error = await send().catch((thrown) => thrown);
    expect(error).toBeInstanceOf(ConnectionLost);
    // Never a stale connection: the daemon may have acted.
    expect(error).toMatchObject({ cause: { name: "UnexpectedResponse" }, isStaleConnection: false });
    respond(ok("fine"));
    expect(await textOf()).toBe("fine");
    expect(sockets).toHaveLength(2);
  });

  test("that is longer than it may be is refused by its head", async () => {
    respond("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n");
    await expect(send()).rejects.toMatchObject({ code: "bad_sandbox_response" });
    respond(ok("x".repeat(1_000)));
    expect(await textOf()).toHaveLength(1_000);
  });

  test("without a request closes the connection", async () => {
    await send();
    sockets[0]?.write(ok("for the next one"));
    await expect.poll(() => pool.isEmpty).toBe(true);
    respond(ok("mine"));
    expect(await textOf()).toBe("mine");
  });
});

describe("a connection that is lost", () => {
  const facts = async () => {
    const error = await send().catch((thrown) => thrown);
    expect(error).toBeInstanceOf(ConnectionLost);
    const { wasKept, hadBegun } = error as ConnectionLost;
    return { wasKept, hadBegun };
  };

  test("says whether it was a kept one, and whether a response had begun", async () => {
    onPiece = (socket) => socket.destroy();
    expect(await facts()).toEqual({ wasKept: false, hadBegun: false });
    onPiece = (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    expect(await facts()).toEqual({ wasKept: false, hadBegun: true });
    respond(ok("fine"));
    await send();
    onPiece = (socket) => socket.destroy();
    expect(await facts()).toEqual({ wasKept: true, hadBegun: false });
    respond(ok("fine"));
    await send();
    onPiece = (socket) => socket.end("H");
    expect(await facts()).toEqual({ wasKept: true, hadBegun: true });
  });

  test("while it is idle is forgotten", async () => {
    await send();
    sockets[0]?.end();
    await expect.poll(() => pool.isEmpty).toBe(true);
    expect(await textOf()).toBe("fine");
  });

  test("to an address without a listener says how", async () => {
    const { port } = address();
    await new Promise((resolve) => server.close(resolve));
    const refused = pool.send({ host: "127.0.0.1", port }, requestOf());
    await expect(refused).rejects.toMatchObject({ name: "ConnectionLost", cause: { code: "ECONNREFUSED" } });
    server.listen(0);
  });

  test("on purpose fails the pending request", async () => {
    onPiece = () => pool.destroy();
    await expect(send()).rejects.toBeInstanceOf(ConnectionLost);
    expect(pool.isEmpty).toBe(true);
  });
});

describe("a deadline", () => {
  const HALF = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";

  test.each([
    ["until the response begins", () => {}, 30, "did not answer within 30 ms"],
    // A busy machine takes its time until the first byte, and that is not what ends this one.
    ["until it ends", (socket: Socket) => socket.write(HALF), 30_000, "did not end its answer within 40 ms"],
  ])("ends a request: %s", async (_, answer, firstByteMs, message) => {
    onPiece = answer;
    const error = await send({ firstByteMs, bodyMs: 40 }).catch((thrown) => thrown);
    expect(error).toMatchObject({ name: "ConnectionLost", isStaleConnection: false });
    expect(error.message).toContain(message);
    expect(pool.isEmpty).toBe(true);
  });

  test("until the end is not moved by single bytes", async () => {
    onPiece = async (socket) => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n");
      while (!socket.destroyed && socket.write("x")) await new Promise((resolve) => setTimeout(resolve, 5));
    };
    await expect(send({ bodyMs: 60 })).rejects.toThrow("did not end its answer within 60 ms");
  });
});

describe("a stream", () => {
  const STREAM = "HTTP/1.1 200 OK\r\nx-kind: stream\r\n\r\n";

  test("belongs to the caller from its head on, and loses nothing", async () => {
    await send();
    respond(`${STREAM}first`);
    const stream = await openStream();
    if (!("socket" in stream)) throw new Error("no stream");
    expect(stream.first.toString()).toBe("first");
    expect(stream.header("X-Kind")).toBe("stream");
    expect(pool.isEmpty).toBe(true);
    expect(sockets).toHaveLength(1);
    sockets[0]?.write(" second");
    await new Promise((resolve) => setTimeout(resolve, 30));
    pool.destroy();
    let rest = "";
    stream.socket.on("data", (piece) => (rest += piece)).resume();
    await expect.poll(() => rest).toBe(" second");
    respond(ok("fine"));
    expect(await textOf()).toBe("fine");
    expect(sockets).toHaveLength(2);
    stream.socket.destroy();
  });

  test("has headers in any case, and joins those of one name", async () => {
    respond("HTTP/1.1 200 OK\r\nTransfer-Encoding:  chunked \r\nWarning: a\r\nwarning: b\r\nEmpty:\r\n\r\n");
    const stream = await openStream();
    if (!("socket" in stream)) throw new Error("no stream");
    expect(stream.header("transfer-encoding")).toBe("chunked");
    expect(stream.header("WARNING")).toBe("a, b");
    expect(stream.header("empty")).toBe("");
    expect(stream.header("encoding")).toBeNull();
    stream.socket.destroy();
  });

  test("that breaks later is no unhandled error", async () => {
    respond(STREAM);
    const stream = await openStream();
    if (!("socket" in stream)) throw new Error("no stream");
    sockets[0]?.resetAndDestroy();
    stream.socket.resume();
    await expect.poll(() => stream.socket.destroyed).toBe(true);
  });

  test("may be refused, whole and within limits, and its connection is kept", async () => {
    respond("HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\nno");
    expect(await openStream()).toMatchObject({ status: 409, body: Buffer.from("no") });
    respond("HTTP/1.1 409 Conflict\r\ncontent-length: 2000\r\n\r\n");
    await expect(openStream()).rejects.toMatchObject({ code: "bad_sandbox_response" });
    expect(sockets).toHaveLength(1);
  });

  test("may be lost or given up like any request", async () => {
    onPiece = (socket) => socket.destroy();
    await expect(openStream()).rejects.toMatchObject({ name: "ConnectionLost", wasKept: false, hadBegun: false });
    const controller = new AbortController();
    onPiece = () => controller.abort(new Error("enough"));
    await expect(openStream({ signal: controller.signal })).rejects.toThrow("enough");
  });
});
