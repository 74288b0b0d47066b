/** Questions on kept plain connections, against a peer that answers whatever a test wants. */

import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ConnectionLost, KeptLines, type Question, StrangeAnswer } from "../src/short-calls/index.ts";

let server: Server;
let lines: KeptLines;
/** Every connection that was ever made, in order. */
let sockets: Socket[];
/** What the peer does with each piece that it gets. */
let onPiece: (socket: Socket, piece: string) => void;
let nowMs: number;

const HEAD = "GET / HTTP/1.1\r\n\r\n";
const ok = (body: string, more = "") => `HTTP/1.1 200 OK\r\n${more}content-length: ${body.length}\r\n\r\n${body}`;

beforeEach(async () => {
  sockets = [];
  nowMs = 0;
  onPiece = (socket) => socket.write(ok("fine"));
  server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.on("data", (piece) => onPiece(socket, piece.toString("latin1")));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  lines = new KeptLines({ connect, peer: "the peer" });
});
afterEach(async () => {
  lines.destroy();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

const address = () => ({ host: "127.0.0.1", port: (server.address() as AddressInfo).port });
const asking = (question: Partial<Question> = {}): Question => ({
  ...{ head: HEAD, body: undefined, answerMaxBytes: 1_000, signal: undefined },
  ...question,
});
const ask = (question?: Partial<Question>) => lines.ask(address(), asking(question));
const engage = (question?: Partial<Question>) => lines.engage(address(), asking(question));
const textOf = async (question?: Partial<Question>) => (await ask(question)).body.toString();
const answering = (text: string) => {
  onPiece = (socket) => socket.write(text, "latin1");
};
const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("a question", () => {
  test("takes the connection used last; two at once have two, and at most so many are kept", async () => {
    lines = new KeptLines({ connect, peer: "the peer", idleMax: 2 });
    expect(await textOf()).toBe("fine");
    expect(await textOf()).toBe("fine");
    expect(sockets).toHaveLength(1);
    await Promise.all([ask(), ask(), ask()]);
    expect(sockets).toHaveLength(3);
    await expect.poll(() => sockets.filter((socket) => !socket.destroyed)).toHaveLength(2);
    await Promise.all([ask(), ask()]);
    expect(sockets).toHaveLength(3);
  });

  test("takes a new connection where it wants one", async () => {
    await ask();
    await ask({ onNewLine: true });
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

  test("that is answered before it was sent leaves its connection unusable", async () => {
    let pieces = 0;
    onPiece = (socket) => {
      if (pieces++ > 0) return;
      socket.pause();
      socket.write("HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n");
    };
    expect((await ask({ head: "POST / HTTP/1.1\r\n\r\n", body: new Uint8Array(50_000_000) })).status).toBe(413);
    expect(lines.isEmpty).toBe(true);
  });

  test("that is given up rejects with the reason and closes its connection, before and while it is asked", async () => {
    const controller = new AbortController();
    onPiece = () => controller.abort(new Error("enough"));
    await expect(ask({ signal: controller.signal })).rejects.toThrow("enough");
    await expect.poll(() => sockets[0]?.destroyed).toBe(true);
    await expect(ask({ signal: controller.signal })).rejects.toThrow("enough");
    expect(sockets).toHaveLength(1);
  });

  test("whose signal fires after the answer ends nothing", async () => {
    const controller = new AbortController();
    await ask({ signal: controller.signal });
    controller.abort();
    await turn();
    await ask();
    expect(sockets).toHaveLength(1);
  });
});

describe("an answer", () => {
  test("is the same in one piece, in two and in single bytes, and head and body may come apart", async () => {
    const whole = ok("answer", "x-more: 1\r\n");
    for (const size of [whole.length, whole.indexOf("answer"), 20, 1]) {
      onPiece = async (socket) => {
        for (let at = 0; at < whole.length; at += size) {
          socket.write(whole.slice(at, at + size));
          await turn();
        }
      };
      const { status, body } = await ask();
      expect({ status, body: body.toString() }).toEqual({ status: 200, body: "answer" });
    }
    expect(sockets).toHaveLength(1);
  });

  test("has headers in any case, and those of one name together", async () => {
    answering(ok("", "X-Sandlot-Generation:  7 \r\nWarning: a\r\nwarning: b\r\nEmpty:\r\n"));
    const { headers } = await ask();
    expect(headers.get("x-sandlot-generation")).toBe("7");
    expect(headers.get("WARNING")).toBe("a, b");
    expect(headers.get("empty")).toBe("");
    expect(headers.get("generation")).toBeNull();
  });

  test.each([
    ["204 without a length", HEAD, "HTTP/1.1 204 No Content\r\n\r\n"],
    ["204 with a length", HEAD, "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"],
    ["304 with the length of what it does not have", HEAD, "HTTP/1.1 304\r\ncontent-length: 70\r\n\r\n"],
    ["HEAD with a length", "HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 70\r\n\r\n"],
    ["HEAD of chunks", "HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"],
  ])("has no body: %s", async (_, head, text) => {
    answering(text);
    expect((await ask({ head })).body).toHaveLength(0);
    expect((await ask({ head })).body).toHaveLength(0);
    expect(sockets).toHaveLength(1);
  });

  test("that announces the end of its connection is the last on it", async () => {
    answering(ok("bye", "Connection: close\r\n"));
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
    ["without content, and with some", "HTTP/1.1 204 No Content\r\n\r\nmore"],
    ["without content, in chunks", "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n"],
    ["that only continues", "HTTP/1.1 100 Continue\r\n\r\n"],
    ["that comes before another", "HTTP/1.1 103 Early Hints\r\ncontent-length: 0\r\n\r\n"],
    ["of HTTP/1.0", "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"],
    ["of something else", "SSH-2.0-OpenSSH\r\n\r\n"],
    ["whose head has no end", `HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(10_000)}`],
  ])("%s is strange, and nothing more is asked there", async (_, text) => {
    answering(text);
    const error = await ask().catch((thrown) => thrown);
    expect(error).toBeInstanceOf(StrangeAnswer);
    expect(error.isTooLong).toBe(false);
    answering(ok("fine"));
    expect(await textOf()).toBe("fine");
    expect(sockets).toHaveLength(2);
  });

  test("that is longer than it may be is refused by its head", async () => {
    answering("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n");
    await expect(ask()).rejects.toMatchObject({ name: "StrangeAnswer", isTooLong: true });
    answering(ok("x".repeat(1_000)));
    expect(await textOf()).toHaveLength(1_000);
  });

  test("that nobody has asked for is nobody's", async () => {
    await ask();
    sockets[0]?.write(ok("for the next one"));
    await expect.poll(() => lines.isEmpty).toBe(true);
    answering(ok("mine"));
    expect(await textOf()).toBe("mine");
  });
});

describe("a connection that is lost", () => {
  const facts = async () => {
    const error = await ask().catch((thrown) => thrown);
    expect(error).toBeInstanceOf(ConnectionLost);
    const { wasKept, hadBegun } = error as ConnectionLost;
    return { wasKept, hadBegun };
  };

  test("says whether it was a kept one, and whether an answer had begun", async () => {
    onPiece = (socket) => socket.destroy();
    expect(await facts()).toEqual({ wasKept: false, hadBegun: false });
    onPiece = (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    expect(await facts()).toEqual({ wasKept: false, hadBegun: true });
    answering(ok("fine"));
    await ask();
    onPiece = (socket) => socket.destroy();
    expect(await facts()).toEqual({ wasKept: true, hadBegun: false });
    answering(ok("fine"));
    await ask();
    onPiece = (socket) => socket.end("H");
    expect(await facts()).toEqual({ wasKept: true, hadBegun: true });
  });

  test("while it is idle is forgotten", async () => {
    await ask();
    sockets[0]?.end();
    await expect.poll(() => lines.isEmpty).toBe(true);
    expect(await textOf()).toBe("fine");
  });

  test("because nobody is there says how", async () => {
    const { port } = address();
    await new Promise((resolve) => server.close(resolve));
    const refused = lines.ask({ host: "127.0.0.1", port }, asking());
    await expect(refused).rejects.toMatchObject({ name: "ConnectionLost", cause: { code: "ECONNREFUSED" } });
    server.listen(0);
  });

  test("on purpose fails whoever is asking", async () => {
    onPiece = () => lines.destroy();
    await expect(ask()).rejects.toBeInstanceOf(ConnectionLost);
    expect(lines.isEmpty).toBe(true);
  });
});

describe("a peer that closes what is idle", () => {
  beforeEach(() => {
    lines = new KeptLines({ connect, peer: "the peer", ageing: { nowMs: () => nowMs, unannouncedMs: 5_000 } });
  });

  test.each([
    ["is left a second before it does", "Keep-Alive: timeout=60, max=10\r\n", 59_000],
    ["is left after a while where it does not say when", "", 5_000],
  ])("%s", async (_, announced, lifeMs) => {
    answering(ok("fine", announced));
    await ask();
    nowMs = lifeMs - 1;
    await ask();
    expect(sockets).toHaveLength(1);
    nowMs += lifeMs;
    await ask();
    expect(sockets).toHaveLength(2);
    await expect.poll(() => sockets[0]?.destroyed).toBe(true);
  });

  test("at once is not kept at all", async () => {
    answering(ok("fine", "Keep-Alive: timeout=1\r\n"));
    await ask();
    expect(lines.isEmpty).toBe(true);
  });
});

describe("a stream", () => {
  const STREAM = "HTTP/1.1 200 OK\r\nx-kind: stream\r\n\r\n";

  test("is the asker's own from its head on, and loses nothing", async () => {
    await ask();
    answering(`${STREAM}first`);
    const engaged = await engage();
    if (!("socket" in engaged)) throw new Error("not engaged");
    expect(engaged.first.toString()).toBe("first");
    expect(engaged.headers.get("X-Kind")).toBe("stream");
    expect(lines.isEmpty).toBe(true);
    expect(sockets).toHaveLength(1);
    sockets[0]?.write(" second");
    await new Promise((resolve) => setTimeout(resolve, 30));
    lines.destroy();
    let rest = "";
    engaged.socket.on("data", (piece) => (rest += piece)).resume();
    await expect.poll(() => rest).toBe(" second");
    answering(ok("fine"));
    expect(await textOf()).toBe("fine");
    expect(sockets).toHaveLength(2);
    engaged.socket.destroy();
  });

  test("that breaks later is nobody else's error", async () => {
    answering(STREAM);
    const engaged = await engage();
    if (!("socket" in engaged)) throw new Error("not engaged");
    sockets[0]?.resetAndDestroy();
    engaged.socket.resume();
    await expect.poll(() => engaged.socket.destroyed).toBe(true);
  });

  test("may be refused, whole and within limits, and its connection is kept", async () => {
    answering("HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\nno");
    expect(await engage()).toMatchObject({ status: 409, body: Buffer.from("no") });
    answering("HTTP/1.1 409 Conflict\r\ncontent-length: 2000\r\n\r\n");
    await expect(engage()).rejects.toMatchObject({ isTooLong: true });
    expect(sockets).toHaveLength(1);
  });

  test("may be lost or given up like any question", async () => {
    onPiece = (socket) => socket.destroy();
    await expect(engage()).rejects.toMatchObject({ name: "ConnectionLost", wasKept: false, hadBegun: false });
    const controller = new AbortController();
    onPiece = () => controller.abort(new Error("enough"));
    await expect(engage({ signal: controller.signal })).rejects.toThrow("enough");
  });
});
