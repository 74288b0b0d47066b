/** Short calls over connections of our own: when, how they end, and what takes node:http instead. */

import { spawn } from "node:child_process";
import { channel, subscribe, unsubscribe } from "node:diagnostics_channel";
import http, { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import net, { type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Transport, type TransportOptions } from "../../src/wire/transport.ts";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

let server: Server;
let handlers: Handler[];
/** Which way each request came: `fetch` says its name, and node:http writes its own headers with capitals. */
let ways: string[];
let sockets: Set<Socket>;
let transport: Transport;

const plain =
  (text: string, status = 200, headers: Record<string, string> = {}): Handler =>
  (_request, response) =>
    response.writeHead(status, { "content-length": Buffer.byteLength(text), ...headers }).end(text);
const chunked =
  (text: string): Handler =>
  (_request, response) => {
    response.write(text.slice(0, 1));
    response.end(text.slice(1));
  };

beforeEach(async () => {
  handlers = [];
  ways = [];
  sockets = new Set();
  await serve("127.0.0.1");
  transport = transportTo();
});
afterEach(async () => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  await stop();
});

async function serve(host: string, port = 0): Promise<void> {
  server = createServer((request, response) => {
    const { rawHeaders, headers } = request;
    ways.push(rawHeaders.includes("Host") ? "http" : headers["user-agent"] === undefined ? "plain" : "fetch");
    sockets.add(request.socket);
    request.resume().on("end", () => (handlers.shift() ?? plain("fine"))(request, response));
  });
  await new Promise<void>((resolve) => server.listen(port, host, resolve));
}

async function stop(): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

function transportTo(options: Partial<TransportOptions> = {}, host = "127.0.0.1"): Transport {
  const { port } = server.address() as AddressInfo;
  return new Transport({ url: `http://${host}:${port}`, retriesMax: 0, ...options });
}

const CALL = { method: "GET", path: "/a", repeatable: true } as const;
const ask = () => transport.text(CALL);
/** Two, so that the second takes the short way. */
const introduced = async () => {
  await ask();
  await ask();
  expect(ways).toEqual(["http", "plain"]);
  ways.length = 0;
};

describe("the short way", () => {
  test("is taken by what may happen twice, once the gateway has answered in the plain way", async () => {
    expect(await ask()).toBe("fine");
    expect(await ask()).toBe("fine");
    expect(await ask()).toBe("fine");
    expect(await transport.text({ ...CALL, repeatable: false })).toBe("fine");
    await transport.text({ method: "GET", path: "/a" });
    expect(ways).toEqual(["http", "plain", "plain", "http", "http"]);
    expect(sockets.size).toBe(2);
  });

  test("says the same as node:http", async () => {
    const seen: unknown[] = [];
    const note: Handler = (request, response) => {
      const { method, url, headers } = request;
      seen.push({ method, url, headers });
      plain("fine")(request, response);
    };
    transport = transportTo({ apiKey: "key", user: "alice" });
    for (const call of [
      { method: "GET", path: "/a", query: { q: "ü &", n: 1 } },
      { method: "POST", path: "/a/%20b", json: { text: "grün" } },
      { method: "POST", path: "/a" },
      { method: "DELETE", path: "/a" },
    ] as const) {
      handlers = [note, note];
      seen.length = 0;
      await transport.text(call);
      ways.length = 0;
      await transport.text({ ...call, repeatable: true });
      expect(ways).toEqual(["plain"]);
      expect(seen[1]).toEqual(seen[0]);
    }
  });

  test("carries bodies whole, both ways", async () => {
    await introduced();
    const json = { text: "ü".repeat(100_000) };
    handlers = [
      (request, response) => plain(request.headers["content-length"] ?? "")(request, response),
      plain("ö".repeat(300_000)),
    ];
    expect(await transport.text({ ...CALL, method: "POST", json })).toBe(String(200_000 + '{"text":""}'.length));
    expect(await ask()).toBe("ö".repeat(300_000));
    expect(ways).toEqual(["plain", "plain"]);
  });

  test("has answers without content, to HEAD, and with errors", async () => {
    await introduced();
    const error = { code: "exec_not_found", message: "m", retryable: false, details: { execId: "x" }, requestId: "r" };
    handlers = [
      (_request, response) => response.writeHead(204).end(),
      plain("not sent"),
      (_request, response) => response.writeHead(304, { "content-length": 10 }).end(),
      plain(JSON.stringify({ error }), 404),
      plain("a proxy's page", 502),
      plain("", 307, { location: "/elsewhere" }),
    ];
    expect(await ask()).toBe("");
    expect(await transport.text({ ...CALL, method: "HEAD" })).toBe("");
    expect(await ask()).toBe("");
    await expect(ask()).rejects.toMatchObject({ code: "exec_not_found" });
    await expect(ask()).rejects.toMatchObject({ code: "internal" });
    await expect(ask()).rejects.toMatchObject({ code: "internal" });
    expect(ways).toEqual(Array(6).fill("plain"));
    expect(sockets.size).toBe(2);
  });

  test("tells which generation has answered", async () => {
    await introduced();
    const generations: number[] = [];
    handlers = [plain("fine", 200, { "X-Sandlot-Generation": "7" })];
    const noticing = transport.noticing((generation) => {
      generations.push(generation);
      return null;
    });
    await noticing.text(CALL);
    expect(generations).toEqual([7]);
    expect(ways).toEqual(["plain"]);
  });

  test("ends with its caller's signal", async () => {
    await introduced();
    const controller = new AbortController();
    handlers = [() => controller.abort(new Error("enough"))];
    await expect(transport.text({ ...CALL, signal: controller.signal })).rejects.toThrow("enough");
    expect(ways).toEqual(["plain"]);
  });

  test("knows addresses of both kinds", async (context) => {
    await stop();
    await serve("::1").catch(() => context.skip("no IPv6 here"));
    transport = transportTo({}, "[::1]");
    const hosts: unknown[] = [];
    const note: Handler = (request, response) => {
      hosts.push(request.headers.host);
      plain("fine")(request, response);
    };
    handlers = [note, note];
    await introduced();
    expect(hosts).toEqual(Array(2).fill(`[::1]:${(server.address() as AddressInfo).port}`));
  });
});

describe("a connection that ended", () => {
  test("while it was idle is replaced unnoticed", async () => {
    await introduced();
    server.closeAllConnections();
    expect(await ask()).toBe("fine");
    expect(ways).toEqual(["plain"]);
  });

  test("just when it was asked is replaced, once", async () => {
    await introduced();
    const breaking: Handler = (request) => request.socket.destroy();
    handlers = [breaking];
    expect(await ask()).toBe("fine");
    expect(ways).toEqual(["plain", "plain"]);
    handlers = [breaking, breaking, breaking];
    await expect(ask()).rejects.toMatchObject({ code: "sandbox_unreachable" });
    expect(handlers).toHaveLength(1);
  });

  test("although it was new is told, and not asked for again here", async () => {
    await introduced();
    handlers = [plain("bye", 200, { connection: "close" }), (request) => request.socket.destroy()];
    await ask();
    await expect(ask()).rejects.toMatchObject({ code: "sandbox_unreachable" });
    expect(ways).toEqual(["plain", "plain"]);
  });

  test("in the middle of an answer is told, and not asked for again here", async () => {
    await introduced();
    handlers = [
      (request, response) => {
        response.writeHead(200, { "content-length": 10 }).write("half");
        setTimeout(() => request.socket.destroy(), 20);
      },
    ];
    await expect(ask()).rejects.toMatchObject({ code: "sandbox_unreachable" });
    expect(ways).toEqual(["plain"]);
  });

  test("is not used in the last second that the gateway keeps it", async () => {
    server.keepAliveTimeout = 2_000;
    await introduced();
    const later = Date.now() + 1_100;
    vi.spyOn(Date, "now").mockImplementation(() => later);
    await ask();
    expect(sockets.size).toBe(3);
  });

  test("with its gateway says that nobody answers", async () => {
    await introduced();
    await stop();
    await expect(ask()).rejects.toMatchObject({ code: "sandbox_unreachable", cause: { code: "ECONNREFUSED" } });
    await serve("127.0.0.1");
  });
});

describe("node:http is asked", () => {
  test("for good where answers come in chunks from the beginning on, and nothing is asked twice", async () => {
    handlers = [chunked("one"), chunked("two"), plain("three")];
    expect([await ask(), await ask(), await ask(), await ask()]).toEqual(["one", "two", "three", "fine"]);
    expect(ways).toEqual(Array(4).fill("http"));
  });

  test("again, and for good, where an answer comes in chunks later", async () => {
    await introduced();
    handlers = [chunked("one"), plain("again")];
    expect(await ask()).toBe("again");
    expect(await ask()).toBe("fine");
    expect(ways).toEqual(["plain", "http", "http"]);
  });

  test("for good where it was answered in chunks itself", async () => {
    await introduced();
    handlers = [chunked("one")];
    await transport.text({ ...CALL, repeatable: false });
    expect(await ask()).toBe("fine");
    expect(ways).toEqual(["http", "http"]);
  });

  test("again, and only this time, where an answer is very long", async () => {
    await introduced();
    const long = "x".repeat(16 * 1024 * 1024 + 1);
    handlers = [plain(long), plain(long)];
    expect((await ask()).length).toBe(long.length);
    expect(await ask()).toBe("fine");
    expect(ways).toEqual(["plain", "http", "plain"]);
  });

  test("for headers that it has an error or a way of its own for", async () => {
    await introduced();
    for (const value of ["a\r\nx-more: 1", "a\nb", "☃"]) {
      const odd = transport.text({ ...CALL, headers: { "x-odd": value } });
      await expect(odd).rejects.toMatchObject({ cause: { code: expect.stringMatching(/^ERR_/) } });
    }
    await transport.text({ ...CALL, headers: { "x-fine": "green" } });
    await transport.text({ ...CALL, headers: { "x-odd": "grün" } });
    await transport.text({ ...CALL, headers: { Connection: "close" } });
    expect(ways).toEqual(["plain", "http", "http"]);
  });

  test("where the address has credentials", async () => {
    transport = transportTo({}, "me:secret@127.0.0.1");
    await ask();
    await ask();
    expect(ways).toEqual(["http", "http"]);
  });

  const takesHttp = async () => {
    await ask();
    expect(ways).toEqual(["http"]);
    ways.length = 0;
  };
  const takesPlain = async () => {
    await ask();
    expect(ways).toEqual(["plain"]);
  };

  test.each(["http.client.request.start", "http.client.request.created", "http.client.response.finish"])(
    "while somebody listens to %s",
    async (name) => {
      await introduced();
      let heard = 0;
      const listener = () => {
        heard += 1;
      };
      subscribe(name, listener);
      await takesHttp();
      unsubscribe(name, listener);
      expect(heard).toBe(1);
      expect(channel(name).hasSubscribers).toBe(false);
      await takesPlain();
    },
  );

  test("while another fetch stands in for Node's own", async () => {
    await introduced();
    vi.stubGlobal("fetch", () => {
      throw new Error("not asked");
    });
    await takesHttp();
    vi.unstubAllGlobals();
    await takesPlain();
  });

  const own = http.request;
  test.each<[string, object, string, unknown]>([
    ["request is wrapped", http, "request", (...input: Parameters<typeof own>) => own(...input)],
    ["ClientRequest is another", http, "ClientRequest", class extends http.ClientRequest {}],
    ["the agent of all is another", http, "globalAgent", new http.Agent({ keepAlive: true })],
    ["agents are patched", http.Agent.prototype, "addRequest", patched("addRequest")],
    ["the agent of all has few connections", http.globalAgent, "maxSockets", 4],
    ["the agent of all is told of a proxy", Reflect.get(http.globalAgent, "options"), "proxyEnv", {}],
    ["connecting is patched", net, "connect", (...input: unknown[]) => Reflect.apply(net.createConnection, net, input)],
  ])("while %s", async (_, holder, name, value) => {
    await introduced();
    const before = Reflect.get(holder, name);
    Reflect.set(holder, name, value);
    try {
      await takesHttp();
    } finally {
      Reflect.set(holder, name, before);
    }
    await takesPlain();
  });
});

function patched(name: string): unknown {
  const before = Reflect.get(http.Agent.prototype, name);
  return function (this: unknown, ...input: unknown[]) {
    return Reflect.apply(before, this, input);
  };
}

describe("a process", () => {
  /** Prints which way its calls went. */
  const PROGRAM = `
    import http from "node:http";
    const ways = [];
    const server = http.createServer((request, response) => {
      const { rawHeaders, headers } = request;
      ways.push(rawHeaders.includes("Host") ? "http" : headers["user-agent"] === undefined ? "plain" : "fetch");
      response.writeHead(200, { "content-length": 2 }).end("ok");
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    if (process.env.WRAPPED) http.request = new Proxy(http.request, {});
    const { Transport } = await import(process.env.TRANSPORT);
    const transport = new Transport({ url: "http://127.0.0.1:" + server.address().port });
    const call = { method: "GET", path: "/", repeatable: true };
    for (let count = 0; count < 2; count += 1) await transport.text(call);
    console.log(ways.join());
    server.unref();
    for (const socket of process._getActiveHandles()) if (socket.server === server) socket.unref();
  `;

  async function run(env: Record<string, string>): Promise<{ output: string; code: number | null }> {
    const TRANSPORT = new URL("../../src/wire/transport.ts", import.meta.url).href;
    const args = ["--conditions=sandlot-source", "--no-warnings", "--input-type=module", "-e", PROGRAM];
    const child = spawn(process.execPath, args, {
      env: { ...process.env, ...env, TRANSPORT },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let output = "";
    child.stdout.on("data", (piece) => (output += piece));
    const kill = setTimeout(() => child.kill("SIGKILL"), 20_000);
    const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
    clearTimeout(kill);
    return { output: output.trim(), code };
  }

  test("ends while a connection is idle", async () => {
    const began = performance.now();
    expect(await run({})).toEqual({ output: "http,plain", code: 0 });
    // The gateway would have closed it after five seconds.
    expect(performance.now() - began).toBeLessThan(4_500);
  });

  test("in which requests were wrapped before the client was loaded takes node:http", async () => {
    expect(await run({ WRAPPED: "1" })).toEqual({ output: "http,http", code: 0 });
  });

  test("whose requests Node sends through a proxy takes fetch, which does", async () => {
    const answer = await run({ NODE_USE_ENV_PROXY: "1", HTTP_PROXY: "http://127.0.0.1:1", NO_PROXY: "127.0.0.1" });
    expect(answer).toEqual({ output: "fetch,fetch", code: 0 });
  });
});
