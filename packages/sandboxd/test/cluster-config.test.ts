/** What a daemon in a cluster is configured with: a file, a canary, and a forward over TLS. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";
import { DAEMON_EXIT, type DaemonConfig, PSK_TLS } from "@sandlot/contract";
import { describe, expect, onTestFinished, test } from "vitest";
import { daemonFile, firstLine, startDaemon, temporaryDirectory } from "./start-daemon.ts";

const PSK = { identity: "k1.egress.sandbox-1.hash", key: "ab".repeat(32) };

describe("a configuration file", () => {
  test("starts a daemon, also written over several lines", async () => {
    const { child } = await startWithFile((directory) =>
      JSON.stringify({ ...basic(directory), listen: { host: "127.0.0.1", port: 0 }, ready: { fd: 4 } }, null, 2),
    );
    const ready = JSON.parse(await firstLine(child.stdio[4] as never)) as { port: number };
    expect(ready.port).toBeGreaterThan(0);
  });

  test.each([
    ["{}", "sandboxId"],
    ["", "holds no configuration"],
    [{ listen: { host: "127.0.0.1", port: 0, psk: { identity: "a", key: "short" } } }, "listen.psk.key"],
    [
      { listen: { host: "127.0.0.1", port: 0, psk: { identity: "a".repeat(129), key: PSK.key } } },
      "listen.psk.identity",
    ],
    [{ forward: { port: 1, to: { host: "a", port: 1 } } }, "forward.to.psk"],
    [{ canary: { host: "127.0.0.1" } }, "canary.port"],
  ])("%j is refused, with the field and without secrets", async (wrong, problem) => {
    const { stderr, exited } = await startWithFile((directory) =>
      typeof wrong === "string" ? wrong : JSON.stringify({ ...basic(directory), ...wrong }),
    );
    expect(await exited).toBe(DAEMON_EXIT.invalidConfig);
    expect(stderr()).toContain(problem);
    expect(stderr()).not.toContain("short");
  });

  test("that is missing is named", async () => {
    const { stderr, exited } = await run(["--config-file", "/nowhere/daemon.json"]);
    expect(await exited).toBe(DAEMON_EXIT.invalidConfig);
    expect(stderr()).toContain("/nowhere/daemon.json");
  });
});

describe("a canary", () => {
  test("that is refused lets the daemon start, and the greeting says how", async () => {
    const server = createServer();
    const port = await portOf(server);
    server.close();
    const { socketPath } = await startDaemon({ config: { canary: { host: "127.0.0.1", port } } });
    const greeting = await greetingOf(socketPath);
    expect(greeting).toMatchObject({ canary: { reachedCount: 0, refusedBy: "ECONNREFUSED" } });
  });

  test("that is reached first and refused later delays the start; nothing listens before", async () => {
    const reached: Socket[] = [];
    const server = createServer((socket) => reached.push(socket));
    const port = await portOf(server);
    const start = startDaemon({ config: { canary: { host: "127.0.0.1", port } } });
    let isReady = false;
    void start.then(() => {
      isReady = true;
    });
    await until(() => reached.length >= 3);
    expect(isReady).toBe(false);
    server.close();
    for (const socket of reached) socket.destroy();
    const { socketPath } = await start;
    const { canary } = await greetingOf(socketPath);
    expect(canary?.reachedCount).toBeGreaterThanOrEqual(3);
  });

  test("that stays reachable ends the daemon with its own code and a reason", async () => {
    const port = await portOf(createServer((socket) => socket.on("error", () => {})));
    const { stderr, exited } = await startWithFile((directory) =>
      JSON.stringify({ ...basic(directory), canary: { host: "127.0.0.1", port, timeoutMs: 400 } }),
    );
    expect(await exited).toBe(DAEMON_EXIT.notIsolated);
    expect(stderr()).toMatch(/^sandboxd: no network policy is enforced: 127\.0\.0\.1:\d+ was reached/);
  });
});

describe("a forward over TLS", () => {
  test("carries bytes both ways, with an end in one direction, and proves the key", async () => {
    const identities: string[] = [];
    const proxy = createTlsServer({
      ...PSK_TLS,
      allowHalfOpen: true,
      pskCallback: (_socket, identity) => {
        identities.push(identity);
        return identity === PSK.identity ? Buffer.from(PSK.key, "hex") : null;
      },
    });
    proxy.on("secureConnection", (socket) => {
      let text = "";
      socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
      socket.on("end", () => socket.end(text.toUpperCase()));
    });
    const inner = await forwardTo(await portOf(proxy));
    expect(await exchange(inner, "to the proxy")).toBe("TO THE PROXY");
    expect(identities).toEqual([PSK.identity]);
  });

  test.each([
    ["another key", (): Server => createTlsServer({ ...PSK_TLS, pskCallback: () => Buffer.alloc(32) })],
    ["no key at all", (): Server => createServer((socket) => socket.on("error", () => {}).end("hello"))],
  ])("a proxy with %s gets nothing, and the client is told", async (_, make) => {
    const proxy = make();
    const received: string[] = [];
    proxy.on("secureConnection", (socket: Socket) => socket.on("data", (chunk) => received.push(String(chunk))));
    proxy.on("tlsClientError", () => {});
    const inner = await forwardTo(await portOf(proxy));
    expect(await exchange(inner, "GET / HTTP/1.1\r\n\r\n")).toMatch(/^HTTP\/1\.1 502 .*does not run at the moment/s);
    expect(received).toEqual([]);
  });
});

function basic(directory: string): Partial<DaemonConfig> {
  return { sandboxId: "sandbox-1", generation: 7, token: "the-token", listen: { path: join(directory, "s") } };
}

async function startWithFile(text: (directory: string) => string) {
  const directory = temporaryDirectory();
  const file = join(directory, "daemon.json");
  writeFileSync(file, text(directory), { mode: 0o444 });
  return run(["--config-file", file]);
}

async function run(args: readonly string[]) {
  const child = spawn(process.execPath, [await daemonFile(), ...args], {
    stdio: ["ignore", "ignore", "pipe", "ignore", "pipe"],
  });
  let text = "";
  child.stderr?.on("data", (chunk) => (text += String(chunk)));
  const exited = new Promise<number | null>((resolve) => child.once("close", resolve));
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await exited;
  });
  return { child, exited, stderr: () => text };
}

async function forwardTo(port: number): Promise<number> {
  const free = createServer();
  const inner = await portOf(free);
  await new Promise((resolve) => free.close(resolve));
  await startDaemon({ config: { forward: { port: inner, to: { host: "127.0.0.1", port, psk: PSK } } } });
  return inner;
}

async function exchange(port: number, text: string): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.end(text);
  let answer = "";
  for await (const chunk of socket) answer += String(chunk);
  return answer;
}

async function greetingOf(socketPath: string): Promise<{ canary?: { reachedCount: number } }> {
  const socket = connect(socketPath);
  onTestFinished(() => void socket.destroy());
  const headers = ["x-sandlot-sandbox: sandbox-1", "x-sandlot-generation: 7", "x-sandlot-token: the-token"];
  socket.write(["GET /sandlot/hold HTTP/1.1", "Host: sandbox", ...headers, "", ""].join("\r\n"));
  let text = "";
  for await (const chunk of socket) {
    text += String(chunk);
    const [line] = /\{.*\}/.exec(text) ?? [];
    if (line !== undefined) return JSON.parse(line);
  }
  throw new Error("no greeting");
}

async function portOf(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10));
}
