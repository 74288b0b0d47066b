/**
 * The AIO client's handling of a server's responses: nothing is dropped, every failure has its code, and a closed
 * connection stays closed.
 */

import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { join } from "node:path";
import { isSandlotError, SandlotError } from "@sandlot/contract";
import { describe, expect, it, onTestFinished } from "vitest";
import { ActivityReader, AioWire, awaitServer, checkServer, KeyIgnored } from "../../../src/compat/aio/index.ts";
import { attach, NEVER, startStandIn, TARGET, world } from "./start-stand-in.ts";

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "it resolved",
    (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
  );

/** A server with one response for everything. */
async function answering(listener: RequestListener): Promise<{ url: string; sockets: Set<Socket> }> {
  const sockets = new Set<Socket>();
  const server = createServer(listener).listen(0, "127.0.0.1");
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, sockets };
}

const always = (status: number, body: unknown) =>
  answering((request, response) => {
    request.resume();
    response.writeHead(status).end(typeof body === "string" ? body : JSON.stringify(body));
  });

describe("results", () => {
  it("have exit code, both streams and status, however a command ends", async () => {
    const { url, directory: cwd } = await startStandIn();
    const { sandbox } = attach(url);
    const run = (command: string, timeoutMs = 10_000) => sandbox.exec(command, { cwd, timeoutMs });
    expect(await run("echo out; echo err >&2; exit 3")).toMatchObject({
      ...{ status: "completed", exitCode: 3, signal: null, stdout: "out\n", stderr: "err\n" },
    });
    expect(await run("echo before; sleep 60", 300)).toMatchObject({
      ...{ status: "timed_out", exitCode: null, stdout: "before\n" },
    });
    expect(await run("kill -KILL $$")).toMatchObject({ status: "killed", exitCode: null, signal: "SIGKILL" });
  });

  it("are whole although one answer holds only a part of them", async () => {
    const { url, directory: cwd } = await startStandIn();
    const { sandbox } = attach(url);
    const options = { cwd, outputMaxBytes: 4_000_000 };
    const { stdout, stdoutDroppedBytes } = await sandbox.exec("head -c 3000000 /dev/zero | tr '\\0' a", options);
    expect([stdout.length, stdoutDroppedBytes]).toEqual([3_000_000, 0]);
  });

  it("are not taken from an answer that says it failed, or that lacks what it must have", async () => {
    const refusing = attach((await always(200, { success: false, message: "no room", data: null })).url);
    const error = await refusing.sandbox.exec("true").catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: "internal" });
    expect((error as Error).message).toContain("no room");
    const lacking = attach((await always(200, { success: true, data: { session_id: "s" } })).url);
    expect(await codeOf(lacking.sandbox.execs.follow("x")[Symbol.asyncIterator]().next())).toBe("bad_sandbox_response");
    const nonsense = attach((await always(200, "<html>")).url);
    expect(await codeOf(nonsense.sandbox.exec("true"))).toBe("bad_sandbox_response");
  });

  it("are typed by what HTTP says", async () => {
    const expected = {
      401: "unauthorized",
      403: "unauthorized",
      404: "capability_missing",
      422: "invalid_request",
      500: "internal",
      502: "sandbox_unreachable",
    };
    for (const [status, code] of Object.entries(expected)) {
      const body = { detail: [{ loc: ["body", "command"], msg: "Field required", type: "missing" }] };
      const { sandbox } = attach((await always(Number(status), body)).url);
      expect([status, await codeOf(sandbox.exec("true"))]).toEqual([status, code]);
    }
  });

  it.each([
    ["not_found", {}, "file_not_found"],
    ["permission_denied", {}, "permission_denied"],
    ["invalid_target", { exception_type: "IsADirectoryError" }, "is_a_directory"],
    ["invalid_target", { errno_name: "ENOTDIR" }, "not_a_directory"],
    ["already_exists", {}, "file_exists"],
    ["invalid_path", {}, "invalid_path"],
    ["read_only_filesystem", {}, "read_only_path"],
    ["no_space_left", {}, "disk_limit_exceeded"],
    ["decode_error", {}, "unsupported_media"],
    ["io_error", {}, "internal"],
  ])("of a file operation that failed as %s %j are %s", async (error_type, more, code) => {
    const data = { path: "/x", operation: "write", message: "it failed", error_type, retryable: false, ...more };
    const { sandbox } = attach((await always(200, { success: false, message: "failed", data })).url);
    // Input goes in through a file.
    expect(await codeOf(sandbox.exec("cat", { stdin: "x" }))).toBe(code);
  });
});

describe("a connection", () => {
  it("ends with its attachment, whatever is under way, and stays ended", async () => {
    const { url, sockets } = await answering((request) => void request.resume());
    const { attachment, sandbox } = attach(url);
    const waiting = codeOf(sandbox.exec("sleep 60"));
    await expect.poll(() => sockets.size).toBe(1);
    await Promise.all([attachment.close(), attachment.close()]);
    await attachment.closed;
    expect(await waiting).toBe("sandbox_unreachable");
    await expect.poll(() => sockets.size).toBe(0);
    const after = await sandbox.files.read("/x").catch((error: unknown) => error);
    expect(after).toMatchObject({ code: "sandbox_unreachable", details: { problem: "the attachment was closed" } });
    expect(await codeOf(sandbox.exec("true"))).toBe("sandbox_unreachable");
    expect(sockets.size).toBe(0);
  });

  it("is kept shortly for the next call, and never cut during one", async () => {
    const { url, sockets } = await answering((request, response) => {
      request.resume();
      setTimeout(() => response.end(), 2_500);
    });
    const wire = new AioWire({ address: { url }, apiKey: null });
    onTestFinished(() => wire.close());
    expect((await wire.ask({ method: "GET", path: "/slow" })).status).toBe(200);
    expect(sockets.size).toBe(1);
    await expect.poll(() => sockets.size).toBe(0);
  });

  it("leaves nothing on the server that only it used", async () => {
    const { url, directory: cwd } = await startStandIn();
    const { sandbox, attachment } = attach(url);
    await Promise.all([1, 2, 3].map(() => sandbox.exec("true", { cwd })));
    await sandbox.exec("true", { cwd });
    const open = async () => {
      const { data } = (await (await fetch(`${url}/v1/bash/sessions`)).json()) as { data: { status: string }[] };
      return data.filter(({ status }) => status === "ready").length;
    };
    expect(await open()).toBe(3);
    await attachment.close();
    expect(await open()).toBe(0);
  });

  it("that breaks is a loss when the engine says dead, and nothing more otherwise", async () => {
    const standIn = await startStandIn();
    const { sandbox, known, attachment } = attach(standIn.url);
    await standIn.kill();
    expect(await codeOf(sandbox.exec("true"))).toBe("sandbox_unreachable");
    known.liveness = "unknown";
    expect(await codeOf(sandbox.exec("true"))).toBe("sandbox_unreachable");
    known.liveness = "dead";
    expect(await codeOf(sandbox.exec("true"))).toBe("sandbox_lost");
    attachment.lose();
    await attachment.closed;
    expect(await codeOf(sandbox.files.stat("/"))).toBe("sandbox_lost");
  });

  it("of an older generation reaches nothing", async () => {
    const { url, directory } = await startStandIn();
    const { sandbox, known } = attach(url);
    known.current = new SandlotError("stale_generation", { ...TARGET, current: null });
    expect(await codeOf(sandbox.files.write(join(directory, "f"), "x"))).toBe("stale_generation");
    known.current = null;
    expect(await codeOf(sandbox.files.stat(join(directory, "f")))).toBe("file_not_found");
  });
});

describe("a server", () => {
  const wireTo = (url: string, apiKey: string | null = null) => {
    const wire = new AioWire({ address: { url }, apiKey });
    onTestFinished(() => wire.close());
    return wire;
  };

  it("is waited for while something else answers in its place", async () => {
    const { url } = await startStandIn({ STAND_IN_STARTS_AFTER_MS: "300" });
    await expect(checkServer(wireTo(url), world, NEVER)).rejects.toThrow("502");
    await awaitServer(wireTo(url), world, NEVER);
  });

  it("is given up with the signal", async () => {
    const { url } = await always(502, {});
    const reason = new Error("enough");
    const controller = new AbortController();
    const waiting = awaitServer(wireTo(url), world, controller.signal);
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
  });

  it("must take the key, be an AIO sandbox, and have what is needed", async () => {
    const { url } = await startStandIn({ SANDBOX_API_KEY: "the-key" });
    await awaitServer(wireTo(url, "the-key"), world, NEVER);
    expect(await codeOf(awaitServer(wireTo(url, "another"), world, NEVER))).toBe("unauthorized");
    expect(await codeOf(awaitServer(wireTo(url), world, NEVER))).toBe("unauthorized");
    const old = await startStandIn({ STAND_IN_WITHOUT: "/v1/bash" });
    expect(await codeOf(awaitServer(wireTo(old.url), world, NEVER))).toBe("capability_missing");
    expect(await codeOf(awaitServer(wireTo((await always(200, { hello: 1 })).url), world, NEVER))).toBe(
      "bad_sandbox_response",
    );
  });

  it("that was given a key and works without it is not used", async () => {
    const { url } = await startStandIn();
    await expect(awaitServer(wireTo(url, "the-key"), world, NEVER)).rejects.toBeInstanceOf(KeyIgnored);
    await awaitServer(wireTo(url), world, NEVER);
  });

  it("reports activity, and does not count the request as activity", async () => {
    const { url, directory: cwd } = await startStandIn();
    const { sandbox } = attach(url);
    const [reader, wire] = [new ActivityReader(world), wireTo(url)];
    expect(await reader.read("a", wire, NEVER)).toMatchObject({ runningExecs: 0, openTerminals: 0 });
    const { execId } = await sandbox.spawn("while :; do :; done", { cwd });
    await new Promise((resolve) => setTimeout(resolve, 300));
    const busy = await reader.read("a", wire, NEVER);
    expect(busy.runningExecs).toBe(1);
    // A busy machine gives the loop little; a sandbox in which nothing runs uses none.
    expect(busy.cpuShare).toBeGreaterThan(0);
    await sandbox.execs.kill(execId);
    expect((await reader.read("a", wire, NEVER)).runningExecs).toBe(0);
  });
});

describe("unsupported by AIO", () => {
  it("is a missing capability", async () => {
    const { url, directory: cwd } = await startStandIn();
    const { sandbox } = attach(url);
    const { execId } = await sandbox.spawn("cat", { cwd, keepStdinOpen: true });
    const uses: readonly Promise<unknown>[] = [
      sandbox.sessions.open(),
      sandbox.terminals.open({ columns: 80, rows: 24 }),
      sandbox.ports.waitFor(80, { timeoutMs: 1 }),
      sandbox.processes(),
      sandbox.usage(),
      sandbox.files.watch(cwd)[Symbol.asyncIterator]().next(),
      sandbox.execs.follow(execId, { until: "closed" })[Symbol.asyncIterator]().next(),
      sandbox.execs.writeStdin(execId, "x", { end: true }),
      sandbox.execs.writeStdin(execId, Uint8Array.of(0xff)),
    ];
    expect(await Promise.all(uses.map(codeOf))).toEqual(uses.map(() => "capability_missing"));
    await sandbox.execs.kill(execId);
  });
});
