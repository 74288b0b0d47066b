/** Which requests go over `node:http` in Node, and which over `fetch`. */

import { spawn } from "node:child_process";
import http, { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { SandlotClient, type SandlotClientOptions } from "../../src/index.ts";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

let server: Server;
let handlers: Handler[] = [];
/** The sender of each request: Node's `fetch` names itself, and `node:http` does not. */
let asked: string[] = [];

const LEASE = {
  ...{ leaseId: "l1", sandboxId: "s1", generation: 7, expiresAt: 0 },
  recovery: { kind: "empty", lost: [], survived: [] },
};
const RESULT = {
  ...{ execId: "x", status: "completed", exitCode: 0, signal: null, stdout: "grün", stderr: "" },
  ...{ stdoutDroppedBytes: 0, stderrDroppedBytes: 0, durationMs: 1 },
};
const CARRIER = Symbol.for("undici.globalDispatcher.1");

beforeEach(async () => {
  asked = [];
  handlers = [];
  server = createServer((request, response) => {
    asked.push(`${request.method} ${request.headers["user-agent"] ?? "no name"}`);
    request.resume().on("end", () => (handlers.shift() ?? done)(request, response));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterEach(async () => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const done: Handler = (_request, response) => response.writeHead(204).end();
const json =
  (status: number, body: unknown): Handler =>
  (_request, response) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));

function clientWith(options: Partial<SandlotClientOptions> = {}): SandlotClient {
  return new SandlotClient({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, ...options });
}

describe("in Node", () => {
  test("JSON requests go over node:http; files go over fetch", async () => {
    const client = clientWith();
    handlers = [json(201, LEASE), json(200, RESULT), (_request, response) => response.writeHead(200).end("content")];
    await using lease = await client.acquire({ thread: "t" });
    expect((await lease.sandbox.exec("true")).stdout).toBe("grün");
    expect(new TextDecoder().decode(await lease.sandbox.files.read("/a"))).toBe("content");
    await lease.sandbox.files.write("/a", "bytes");
    expect(asked).toEqual(["POST no name", "POST no name", "GET node", "PUT node"]);
  });

  test("events are read as they come, without fetch; a reader that stops ends them", async () => {
    const over = Promise.withResolvers<void>();
    const event = { stream: "stdout", offset: 0, base64: "Z3LDvG4=" };
    handlers = [
      json(201, LEASE),
      (_request, response) => {
        response.once("close", () => over.resolve());
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(`event: stdout\ndata: ${JSON.stringify(event)}\n\n`);
      },
    ];
    await using lease = await clientWith().acquire({ thread: "t" });
    for await (const { type } of lease.sandbox.execs.follow("x")) {
      expect(type).toBe("output");
      break;
    }
    await over.promise;
    expect(asked).toEqual(["POST no name", "GET no name"]);
  });

  test("a follower that stops gets its reason, and the connection ends", async () => {
    const over = Promise.withResolvers<void>();
    const abort = new AbortController();
    handlers = [
      json(201, LEASE),
      (_request, response) => {
        response.once("close", () => over.resolve());
        response.writeHead(200, { "content-type": "text/event-stream" }).write(": alive\n\n");
        abort.abort(new Error("enough"));
      },
    ];
    await using lease = await clientWith().acquire({ thread: "t" });
    const follow = async () => {
      for await (const _ of lease.sandbox.execs.follow("x", { signal: abort.signal }));
    };
    await expect(follow()).rejects.toThrow("enough");
    await over.promise;
  });

  test("a letter that comes in two pieces is one", async () => {
    const body = Buffer.from(JSON.stringify(RESULT));
    const half = body.indexOf(0xc3) + 1;
    handlers = [
      json(201, LEASE),
      (_request, response) => {
        response.writeHead(200).write(body.subarray(0, half));
        setTimeout(() => response.end(body.subarray(half)), 20);
      },
    ];
    await using lease = await clientWith().acquire({ thread: "t" });
    expect((await lease.sandbox.exec("true")).stdout).toBe("grün");
  });

  test("a request that found its kept connection closed is sent again, if it is repeatable", async () => {
    const breaking: Handler = (request) => request.socket.destroy();
    handlers = [json(201, LEASE), json(200, RESULT), breaking, json(200, RESULT)];
    await using lease = await clientWith().acquire({ thread: "t" });
    await lease.sandbox.exec("true");
    expect((await lease.sandbox.exec("true")).stdout).toBe("grün");
    expect(asked).toHaveLength(4);
  });

  test("a connection that the gateway closed while it was idle is replaced", async () => {
    handlers = [json(201, LEASE), json(200, RESULT), json(200, RESULT)];
    await using lease = await clientWith().acquire({ thread: "t" });
    await lease.sandbox.exec("true");
    server.closeAllConnections();
    expect((await lease.sandbox.exec("true")).stdout).toBe("grün");
  });

  test("a wrapper that is installed later sees every request", async () => {
    handlers = [json(201, LEASE), json(200, RESULT)];
    await using lease = await clientWith().acquire({ thread: "t" });
    const wrapped = vi.spyOn(http, "request");
    await lease.sandbox.exec("true");
    expect(wrapped).toHaveBeenCalledTimes(1);
  });

  test("redirects are not followed", async () => {
    handlers = [(_request, response) => response.writeHead(307, { location: "/elsewhere" }).end()];
    await expect(clientWith().acquire({ thread: "t" })).rejects.toMatchObject({ code: "internal" });
    expect(asked).toHaveLength(1);
  });

  test("a caller that gives up gets its reason, before the answer and in the middle of it", async () => {
    for (const answers of [false, true]) {
      const controller = new AbortController();
      handlers = [
        (_request, response) => {
          if (answers) response.writeHead(201, { "content-length": "1000" }).write("{");
          setTimeout(() => controller.abort(new Error("enough")), 20);
        },
      ];
      const acquiring = clientWith().acquire({ thread: "t", signal: controller.signal });
      await expect(acquiring).rejects.toThrow("enough");
    }
  });
});

describe("everything goes over fetch", () => {
  const overFetch = async (client: SandlotClient) => {
    handlers = [json(201, LEASE)];
    await (await client.acquire({ thread: "t" })).release();
    expect(asked).toEqual(["POST node", "DELETE node"]);
  };

  test("that was given", async () => {
    const given = vi.fn<typeof fetch>((...input) => fetch(...input));
    await overFetch(clientWith({ fetch: given }));
    expect(given).toHaveBeenCalledTimes(2);
  });

  test("that stands in for Node's own", async () => {
    const own = fetch;
    const standIn = vi.fn<typeof fetch>((...input) => own(...input));
    vi.stubGlobal("fetch", standIn);
    await overFetch(clientWith());
    expect(standIn).toHaveBeenCalledTimes(2);
  });

  test("through a replaced fetch", async () => {
    await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    asked = [];
    const own = Reflect.get(globalThis, CARRIER) as { dispatch(...input: unknown[]): unknown };
    let carried = 0;
    class Proxying {
      dispatch(...input: unknown[]): unknown {
        carried += 1;
        return own.dispatch(...input);
      }
    }
    Reflect.set(globalThis, CARRIER, new Proxying());
    try {
      await overFetch(clientWith());
      expect(carried).toBe(2);
    } finally {
      Reflect.set(globalThis, CARRIER, own);
    }
  });
});

describe("a process", () => {
  /** Prints the names of its requests' senders. */
  const PROGRAM = `
    import { createServer } from "node:http";
    const names = [];
    const sockets = new Set();
    const server = createServer((request, response) => {
      names.push(request.headers["user-agent"] ?? "no name");
      sockets.add(request.socket);
      response.writeHead(200, { "content-length": 2 }).end("ok");
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { Transport } = await import(process.env.TRANSPORT);
    const transport = new Transport({ url: "http://127.0.0.1:" + server.address().port });
    for (let count = 0; count < 2; count += 1) await transport.text({ method: "GET", path: "/", repeatable: true });
    console.log(names.join() + " on " + sockets.size);
    server.unref();
    for (const socket of sockets) socket.unref();
  `;

  async function run(env: Record<string, string>): Promise<{ output: string; code: number | null }> {
    const TRANSPORT = new URL("../../src/wire/transport.ts", import.meta.url).href;
    const args = ["--conditions=sandlot-source", "--no-warnings", "--input-type=module", "-e", PROGRAM];
    const child = spawn(process.execPath, args, {
      env: { ...process.env, ...env, TRANSPORT },
      stdio: ["ignore", "pipe", "inherit"],
      timeout: 20_000,
    });
    let output = "";
    child.stdout.on("data", (piece) => (output += piece));
    const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
    return { output: output.trim(), code };
  }

  test("sends two requests on one connection, and ends while that is idle", async () => {
    const began = performance.now();
    expect(await run({})).toEqual({ output: "no name,no name on 1", code: 0 });
    // The server would have closed it after five seconds.
    expect(performance.now() - began).toBeLessThan(4_500);
  });

  test("whose requests Node sends through a proxy uses fetch, which knows the proxy", async () => {
    const env = { NODE_USE_ENV_PROXY: "1", HTTP_PROXY: "http://127.0.0.1:1", NO_PROXY: "127.0.0.1" };
    expect(await run(env)).toEqual({ output: expect.stringMatching(/^node,node on/), code: 0 });
  });
});
