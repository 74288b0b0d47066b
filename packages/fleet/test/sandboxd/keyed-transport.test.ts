/** A daemon on a port with a pre-shared key: every kind of call works, and no other peer is taken for either end. */

import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { DAEMON_HEADERS, isSandlotError, PSK_TLS, type SandlotError } from "@sandlot/contract";
import { describe, expect, onTestFinished, test } from "vitest";
import { startDaemon } from "../../../sandboxd/test/start-daemon.ts";
import { createAuthority, issueCertificate } from "../../src/host/egress/certificates/authority.ts";
import { DaemonAttachment, type DaemonTarget, FleetKeys, rebindDaemon } from "../../src/sandboxd/index.ts";
import { attached, KEYS, keyedListen, OWNER, targetOf, world } from "./attached.ts";

const keysOf = (...ids: readonly (readonly [string, number])[]) =>
  FleetKeys.parse(ids.map(([id, byte]) => `${id}:${Buffer.alloc(32, byte).toString("base64")}`).join("\n"), "keys");

const keyed = (config = {}) => attached({ config: { listen: keyedListen(), ...config } });

describe("over the key", () => {
  test("commands, files, sessions, terminals, watches and tunnels work", async () => {
    const { sandbox, attachment, daemon } = await keyed();
    expect(await sandbox.exec("cat", { stdin: "in" })).toMatchObject({ exitCode: 0, stdout: "in" });
    const { execId } = await sandbox.spawn("echo one; sleep 0.1; echo two");
    const pieces: string[] = [];
    for await (const piece of sandbox.execs.follow(execId)) {
      if (piece.type === "output") pieces.push(Buffer.from(piece.bytes).toString());
    }
    expect(pieces.join("")).toBe("one\ntwo\n");
    const { sessionId } = await sandbox.sessions.open({});
    await sandbox.sessions.exec(sessionId, "cd /usr");
    expect((await sandbox.sessions.exec(sessionId, "pwd")).stdout).toBe("/usr\n");
    const big = Buffer.alloc(5_000_000, "x");
    await sandbox.files.write(join(daemon.workspace, "big"), big);
    expect(Buffer.compare(await sandbox.files.read(join(daemon.workspace, "big")), big)).toBe(0);
    const terminal = await sandbox.terminals.open({ command: ["cat"], columns: 80, rows: 24 });
    terminal.write("hello\r");
    let seen = "";
    for await (const { bytes } of terminal.output) {
      seen += Buffer.from(bytes).toString();
      if (seen.split("hello").length > 2) break;
    }
    await terminal.detach();
    const inner = createServer({ allowHalfOpen: true }, (socket) => {
      let text = "";
      socket.on("data", (chunk) => (text += String(chunk)));
      socket.on("end", () => socket.end(text.toUpperCase()));
    });
    const tunnel = await attachment.connect(await portOf(inner));
    tunnel.end("after the end");
    expect(await textOf(tunnel)).toBe("AFTER THE END");
  });

  test("a stream of content keeps its order and its length", async () => {
    const { sandbox, daemon } = await keyed();
    const path = join(daemon.workspace, "stream");
    const parts = Array.from({ length: 200 }, (_, index) => Buffer.alloc(70_001, index % 251));
    await sandbox.files.upload(path, asIterable(parts));
    const chunks: Uint8Array[] = [];
    for await (const chunk of await sandbox.files.download(path)) chunks.push(chunk);
    expect(Buffer.compare(Buffer.concat(chunks), Buffer.concat(parts))).toBe(0);
  });

  test("a hold ends when the daemon does", async () => {
    const { attachment, daemon } = await keyed();
    process.kill(daemon.pid, "SIGKILL");
    await attachment.closed;
    expect(attachment.isOpen).toBe(false);
  });
});

describe("keys", () => {
  test("during a rotation a daemon of the old and one of the new key are both reached", async () => {
    const [old, next] = [keysOf(["a", 1]), keysOf(["b", 2])];
    const both = keysOf(["b", 2], ["a", 1]);
    for (const keys of [old, next]) {
      const daemon = await startDaemon({ config: { listen: keyedListen(keys) } });
      const target = withKeys(targetOf(daemon), both);
      const attachment = await DaemonAttachment.open(target, world);
      expect((await attachment.sandbox.exec("echo hi")).stdout).toBe("hi\n");
      await attachment.close();
    }
    expect(both.issue("daemon", OWNER)).toEqual(next.issue("daemon", OWNER));
  });

  test("differ by sandbox, blueprint, purpose and fleet key", () => {
    const all = [
      KEYS.issue("daemon", OWNER),
      KEYS.issue("egress", OWNER),
      KEYS.issue("daemon", { ...OWNER, sandboxId: "sandbox-2" }),
      KEYS.issue("daemon", { ...OWNER, blueprintHash: "ffffffffffffffffffffffffffffffff" }),
      keysOf(["k1", 2]).issue("daemon", OWNER),
    ];
    expect(new Set(all.map(({ key }) => key)).size).toBe(all.length);
    expect(all.every(({ key }) => /^[0-9a-f]{64}$/.test(key))).toBe(true);
  });

  test("are found again by their identity, and no other", () => {
    const issued = KEYS.issue("egress", OWNER);
    expect(KEYS.named(issued.identity)).toEqual({ ...OWNER, purpose: "egress", psk: issued });
    for (const wrong of [
      "",
      "k1",
      "k2.egress.a.b",
      "k1.other.a.b",
      "k1.egress.a/../b.c",
      `k1.egress.${"a".repeat(65)}.b`,
    ])
      expect(KEYS.named(wrong)).toBeNull();
  });

  test("a broken list names the line and never its content", () => {
    const good = `k1:${Buffer.alloc(32, 1).toString("base64")}`;
    for (const text of ["", "k1:c2hvcnQ=", `${good}\n${good}`, `${good}\nk 2:x`, `${good}\nb${good}\nc${good}`]) {
      const error = thrownBy(() => FleetKeys.parse(text, "fleet.key"));
      expect(isSandlotError(error, "config_invalid")).toBe(true);
      expect((error as Error).message).not.toContain("AQEB");
    }
  });
});

describe("the fleet refuses", () => {
  test.each([
    ["a daemon with another key", () => daemonWith(keysOf(["k1", 9]))],
    ["a daemon with an unknown identity", () => daemonWith(keysOf(["k9", 1]))],
    ["a server with a certificate", certificateServer],
    ["a plain server", plainServer],
  ])("%s", async (_, start) => {
    const port = await start();
    const target = { address: { host: "127.0.0.1", port, keys: KEYS.accepted("daemon", OWNER) }, ...CREDENTIALS };
    const error = await DaemonAttachment.open(target, world).catch((problem: unknown) => problem);
    expect(isSandlotError(error, "sandbox_unreachable")).toBe(true);
    expect((error as SandlotError<"sandbox_unreachable">).details.problem).toContain(
      "did not prove this sandbox's key",
    );
  });

  test("a peer that ends at once", async () => {
    const port = await listening(createServer((socket) => socket.destroy()));
    const target = { address: { host: "127.0.0.1", port, keys: KEYS.accepted("daemon", OWNER) }, ...CREDENTIALS };
    const error = await DaemonAttachment.open(target, world).catch((problem: unknown) => problem);
    expect(isSandlotError(error, "sandbox_unreachable")).toBe(true);
  });

  test("a peer that never answers, in time", async () => {
    const port = await listening(createServer(() => {}));
    const target = { address: { host: "127.0.0.1", port, keys: KEYS.accepted("daemon", OWNER) }, ...CREDENTIALS };
    const impatient = { ...world, timer: (_: number, fire: () => void) => world.timer(50, fire) };
    const error = await DaemonAttachment.open(target, impatient).catch((problem: unknown) => problem);
    expect(isSandlotError(error, "sandbox_unreachable")).toBe(true);
  });

  test("says so when nothing listens, with the network's own reason", async () => {
    const server = createServer();
    const port = await listening(server);
    server.close();
    const target = { address: { host: "127.0.0.1", port, keys: KEYS.accepted("daemon", OWNER) }, ...CREDENTIALS };
    const error = await DaemonAttachment.open(target, world).catch((problem: unknown) => problem);
    expect((error as SandlotError<"sandbox_unreachable">).details.problem).toContain("ECONNREFUSED");
  });
});

describe("the daemon refuses", () => {
  test("a client with a wrong key, a wrong identity, a certificate's TLS or none, and serves the next", async () => {
    const { daemon, sandbox } = await keyed();
    const port = daemon.ready.port ?? 0;
    const { identity, key } = KEYS.issue("daemon", OWNER);
    const wrongKey = KEYS.issue("egress", OWNER).key;
    expect(await handshake(port, { identity, key: wrongKey })).not.toBe("secure");
    expect(await handshake(port, { identity: "another", key })).not.toBe("secure");
    expect(await handshake(port, null)).not.toBe("secure");
    const text = "GET /sandlot/ports HTTP/1.1\r\nHost: sandbox\r\n\r\n";
    const plain = connect(port, "127.0.0.1");
    plain.on("error", () => {});
    plain.write(text);
    expect(await textOf(plain)).not.toContain("HTTP");
    expect(await handshake(port, { identity, key })).toBe("secure");
    expect((await sandbox.exec("echo still")).stdout).toBe("still\n");
  });

  test("a client with the key and without the token", async () => {
    const { target } = await keyed();
    const error = await DaemonAttachment.open({ ...target, token: "wrong" }, world).catch(
      (problem: unknown) => problem,
    );
    expect(isSandlotError(error, "stale_generation")).toBe(true);
  });
});

describe("a rebind that expects a file", () => {
  const next = { generation: 8, token: "next" };

  test("waits for its nonce, and then changes the credentials", async () => {
    const { daemon, target } = await keyed();
    const path = join(daemon.workspace, ".arrived");
    writeFileSync(path, "older");
    const after = { ...target, ...next };
    const bound = DaemonAttachment.rebind(target, after, world, undefined, { expect: { path, nonce: "nonce-1" } });
    await new Promise((resolve) => setTimeout(resolve, 100));
    writeFileSync(path, "nonce-1");
    const attachment = await bound;
    expect((await attachment.sandbox.exec("echo here")).stdout).toBe("here\n");
    await attachment.close();
  });

  test("without it in time is wait_timeout, and changes nothing", async () => {
    const { daemon, target, sandbox } = await keyed();
    const path = join(daemon.workspace, "directory");
    mkdirSync(path);
    const rebound = DaemonAttachment.rebind(target, { ...target, ...next }, world, undefined, {
      expect: { path, nonce: "nonce-1" },
    });
    expect(isSandlotError(await rebound.catch((error: unknown) => error), "wait_timeout")).toBe(true);
    expect((await sandbox.exec("echo before")).stdout).toBe("before\n");
    await rebindDaemon(target, next);
  });

  test("does not look for a caller without credentials", async () => {
    const { daemon, target } = await keyed();
    const wrong = { ...target, token: "wrong" };
    const expectation = { path: join(daemon.workspace, "x"), nonce: "n" };
    const startedAt = performance.now();
    const rebound = DaemonAttachment.rebind(wrong, { ...target, ...next }, world, undefined, { expect: expectation });
    expect(isSandlotError(await rebound.catch((error: unknown) => error), "stale_generation")).toBe(true);
    expect(performance.now() - startedAt).toBeLessThan(2_900);
  });
});

const CREDENTIALS = { sandboxId: "sandbox-1", generation: 7, token: "the-token" };

function withKeys(target: DaemonTarget, keys: FleetKeys): DaemonTarget {
  return { ...target, address: { ...target.address, keys: keys.accepted("daemon", OWNER) } as DaemonTarget["address"] };
}

async function daemonWith(keys: FleetKeys): Promise<number> {
  return (await startDaemon({ config: { listen: keyedListen(keys) } })).ready.port ?? 0;
}

function certificateServer(): Promise<number> {
  const authority = createAuthority(["sandbox.test"], Date.now());
  const { certificatePem: cert, keyPem: key } = issueCertificate(authority, "sandbox.test", Date.now());
  return listening(createTlsServer({ cert, key }));
}

function plainServer(): Promise<number> {
  const answer = `HTTP/1.1 200 OK\r\ncontent-length: 2\r\n${DAEMON_HEADERS.sandboxId}: sandbox-1\r\n\r\n{}`;
  return listening(createServer((socket) => socket.on("error", () => {}).end(answer)));
}

async function listening(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => sockets.add(socket));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return portOf(server);
}

async function portOf(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** `secure`, or the code of the refusal. */
function handshake(port: number, psk: { identity: string; key: string } | null): Promise<string> {
  return new Promise((resolve) => {
    const options = { port, host: "127.0.0.1", checkServerIdentity: () => undefined, rejectUnauthorized: false };
    const keyed = {
      ...PSK_TLS,
      pskCallback: () => ({ psk: Buffer.from(psk?.key ?? "", "hex"), identity: psk?.identity ?? "" }),
    };
    const socket = connectTls({ ...options, ...(psk !== null && keyed) });
    socket.once("secureConnect", () => {
      socket.destroy();
      resolve("secure");
    });
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.once("close", () => resolve("closed"));
  });
}

async function textOf(source: AsyncIterable<unknown>): Promise<string> {
  let text = "";
  try {
    for await (const chunk of source) text += String(chunk);
  } catch {
    // A reset is an end, too.
  }
  return text;
}

async function* asIterable<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}

function thrownBy(work: () => unknown): unknown {
  try {
    work();
    return null;
  } catch (error) {
    return error;
  }
}
