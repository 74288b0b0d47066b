/** Connections to servers inside. */

import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { request } from "node:http";
import { connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { attached } from "./attached.ts";
import { code, eventually } from "./expectations.ts";

/** An echo server, on one loopback. The daemon of these tests shares our network. */
async function echo(host: string): Promise<{ port: number; server: Server }> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => {});
    socket.pipe(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  onTestFinished(() => void server.close());
  return { port: (server.address() as { port: number }).port, server };
}

describe("a tunnel", () => {
  test.each(["127.0.0.1", "::1"])("carries bytes both ways to %s, and the end of each side", async (host) => {
    const { attachment } = await attached();
    const { port } = await echo(host);
    const tunnel = await attachment.connect(port);
    const sent = randomBytes(3_000_000);
    const hash = createHash("sha256");
    const received = (async () => {
      for await (const chunk of tunnel) hash.update(chunk as Buffer);
    })();
    tunnel.end(sent);
    await received;
    expect(hash.digest("hex")).toBe(createHash("sha256").update(sent).digest("hex"));
  });

  test("counts as preview traffic, and asking does not", async () => {
    const { attachment, sandbox } = await attached();
    expect((await sandbox.activity()).previewTrafficAt).toBeNull();
    const { port } = await echo("127.0.0.1");
    const tunnel = await attachment.connect(port);
    tunnel.on("error", () => {});
    const first = (await sandbox.activity()).previewTrafficAt;
    expect(Math.abs((first ?? 0) - Date.now())).toBeLessThan(10_000);
    await new Promise((resolve) => setTimeout(resolve, 30));
    tunnel.write("x");
    await eventually(async () => ((await sandbox.activity()).previewTrafficAt ?? 0) > (first ?? 0));
    tunnel.destroy();
  });

  test("speaks HTTP with a server that a command has started", async () => {
    const { attachment, sandbox } = await attached();
    const script = `require("http").createServer((q, s) => s.end("path " + q.url)).listen(0, "127.0.0.1", function () { console.log("port=" + this.address().port) })`;
    await sandbox.spawn([process.execPath, "-e", script], { execId: "server" });
    const reply = await sandbox.execs.waitForOutput("server", "port=", { timeoutMs: 10_000 });
    const port = Number(/port=(\d+)/.exec(reply.matched ? reply.line : "")?.[1]);
    await sandbox.ports.waitFor(port, { timeoutMs: 1_000 });
    expect(await sandbox.ports.list()).toContainEqual(expect.objectContaining({ port, address: "127.0.0.1" }));
    const socket = await attachment.connect(port);
    const text = await new Promise<string>((resolve, reject) => {
      const outgoing = request({ path: "/a?b", createConnection: () => socket as never }, (response) => {
        let body = "";
        response.on("data", (chunk) => {
          body += String(chunk);
        });
        response.on("end", () => resolve(body));
      });
      outgoing.on("error", reject);
      outgoing.end();
    });
    expect(text).toBe("path /a?b");
  });

  test("to a port without a listener is refused, and the daemon goes on", async () => {
    const { attachment, sandbox } = await attached();
    expect(await code(attachment.connect(1))).toBe("sandbox_unreachable");
    expect(await code(attachment.connect(0))).toBe("invalid_request");
    expect(await code(attachment.connect(70_000))).toBe("invalid_request");
    const reason = new Error("no longer wanted");
    await expect(attachment.connect(1, AbortSignal.abort(reason))).rejects.toBe(reason);
    expect((await sandbox.exec("echo fine")).stdout).toBe("fine\n");
  });

  test("that breaks on one side breaks on the other", async () => {
    const { attachment } = await attached();
    const { port, server } = await echo("127.0.0.1");
    const accepted = new Promise<{ destroy(): void; destroyed: boolean }>((resolve) =>
      server.once("connection", resolve),
    );
    const tunnel = await attachment.connect(port);
    tunnel.on("error", () => {});
    const inner = await accepted;
    tunnel.destroy();
    await eventually(() => inner.destroyed);
    const second = new Promise<{ destroy(): void }>((resolve) => server.once("connection", resolve));
    const other = await attachment.connect(port);
    other.on("error", () => {});
    other.resume();
    (await second).destroy();
    await eventually(() => other.destroyed);
  });

  test("needs the credentials, like everything", async () => {
    const { daemon } = await attached();
    const answer = await new Promise<string>((resolve) => {
      const socket = connect(daemon.socketPath, () => {
        socket.write("GET /sandlot/connect?port=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
      });
      let text = "";
      socket.on("data", (chunk) => {
        text += String(chunk);
      });
      socket.on("close", () => resolve(text));
    });
    expect(answer).toMatch(/^HTTP\/1.1 401 /);
    expect(answer).toContain('"unauthorized"');
  });
});

describe("the way out", () => {
  test("carries connections to a port to a unix socket, to its present listener", async () => {
    const probe = await echo("127.0.0.1");
    const { port } = probe;
    await new Promise<void>((resolve) => probe.server.close(() => resolve()));
    const directory = mkdtempSync(join(tmpdir(), "sd-out-"));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const socketPath = join(directory, "proxy");
    const { sandbox } = await attached({ config: { forward: { port, socketPath } } });
    const ask = `exec 3<>/dev/tcp/127.0.0.1/${port}; printf 'hello\\n' >&3; head -1 <&3`;
    expect((await sandbox.exec(ask)).stdout).toContain("502 Bad Gateway");
    for (const name of ["first", "second"]) {
      const server = createServer(
        (socket) => void socket.once("data", (data) => socket.end(`${name} ${String(data)}`)),
      );
      await new Promise<void>((resolve) => server.listen(socketPath, resolve));
      expect((await sandbox.exec(ask)).stdout).toBe(`${name} hello\n`);
      await new Promise<void>((resolve) => server.close(() => resolve()));
    }
  });
});
