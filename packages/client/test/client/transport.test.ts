/** The client's requests: which it repeats, which it does not, and how streams resume after a break. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { SandlotClient } from "../../src/index.ts";

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

let server: Server;
let client: SandlotClient;
let handlers: Handler[] = [];
const asked: string[] = [];

const LEASE = {
  leaseId: "l1",
  sandboxId: "s1",
  generation: 7,
  expiresAt: 0,
  recovery: { kind: "empty", lost: [], survived: [] },
};
const RESULT = {
  ...{ execId: "x", status: "completed", exitCode: 0, signal: null, stdout: "ok", stderr: "" },
  ...{ stdoutDroppedBytes: 0, stderrDroppedBytes: 0, durationMs: 1 },
};

beforeEach(async () => {
  asked.length = 0;
  handlers = [];
  server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      asked.push(`${request.method} ${request.url}`);
      const handler = handlers.shift();
      if (handler === undefined) return json(response, 204, null);
      handler(request, response, body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  client = new SandlotClient({ url: `http://127.0.0.1:${port()}/`, apiKey: "key" });
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function port(): number {
  return (server.address() as AddressInfo).port;
}

function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(body === null ? "" : JSON.stringify(body));
}

function refuse(response: ServerResponse, status: number, code: string, details: object): void {
  json(response, status, { error: { code, message: "m", retryable: true, details, requestId: "r" } });
}

const lease: Handler = (_request, response) => json(response, 201, LEASE);
const broken: Handler = (request) => request.socket.destroy();

describe("repeating", () => {
  test("requests that were refused before they had an effect", async () => {
    handlers = [
      (_request, response) => refuse(response, 429, "rate_limited", { scope: "s", max: 1, retryAfterMs: 10 }),
      lease,
    ];
    await using one = await client.acquire({ thread: "t" });
    expect(one.id).toBe("l1");
    expect(asked).toEqual(["POST /v1/threads/t/leases", "POST /v1/threads/t/leases"]);
  });

  test("later each time, although the limit names when one more has room again: others wait for it, too", async () => {
    const askedAt: number[] = [];
    const limited: Handler = (_request, response) => {
      askedAt.push(performance.now());
      refuse(response, 429, "rate_limited", { scope: "s", max: 1, retryAfterMs: 1 });
    };
    handlers = Array.from({ length: 20 }, () => limited);
    await expect(client.acquire({ thread: "t" })).rejects.toMatchObject({ code: "rate_limited" });
    const waited = askedAt.slice(1).map((at, index) => at - (askedAt[index] ?? 0));
    // Half of the wait is chance. A timer may be early by a millisecond, and never is by more.
    for (const [index, leastMs] of [50, 100, 200, 400].entries())
      expect(waited[index]).toBeGreaterThanOrEqual(leastMs - 2);
    expect(askedAt).toHaveLength(5);
  });

  test("an answer that broke off half-way, of what may happen twice", async () => {
    const torn: Handler = (request, response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "1000" }).write("{");
      setTimeout(() => request.socket.destroy(), 20);
    };
    handlers = [lease, torn, (_request, response) => json(response, 200, RESULT), torn];
    await using one = await client.acquire({ thread: "t" });
    expect((await one.sandbox.exec("echo ok")).stdout).toBe("ok");
    await expect(client.branchThread("t", "u")).rejects.toMatchObject({ code: "sandbox_unreachable" });
    expect(asked).toHaveLength(4);
  });

  test("not an acquire whose answer was lost: it may have happened", async () => {
    handlers = [broken];
    await expect(client.acquire({ thread: "t" })).rejects.toMatchObject({ code: "sandbox_unreachable" });
    expect(asked).toHaveLength(1);
  });

  test("a command, under the same id", async () => {
    const ids: string[] = [];
    const note = (body: string) => ids.push((JSON.parse(body) as { execId: string }).execId);
    handlers = [
      lease,
      (request, _response, body) => {
        note(body);
        request.socket.destroy();
      },
      (_request, response, body) => {
        note(body);
        json(response, 200, RESULT);
      },
    ];
    await using one = await client.acquire({ thread: "t" });
    expect((await one.sandbox.exec("echo ok")).stdout).toBe("ok");
    expect(ids).toHaveLength(2);
    expect(ids[0]).toBe(ids[1]);
  });

  test("not an append, a rename or a conditional write", async () => {
    handlers = [lease, broken, broken, broken];
    await using one = await client.acquire({ thread: "t" });
    const { files } = one.sandbox;
    await expect(files.append("/a", "x")).rejects.toMatchObject({ code: "sandbox_unreachable" });
    await expect(files.rename("/a", "/b")).rejects.toMatchObject({ code: "sandbox_unreachable" });
    await expect(files.write("/a", "x", { ifVersion: "1" })).rejects.toMatchObject({ code: "sandbox_unreachable" });
    expect(asked).toHaveLength(4);
  });

  test("not what was refused for good", async () => {
    handlers = [lease, (_request, response) => refuse(response, 404, "file_not_found", { path: "/a" })];
    await using one = await client.acquire({ thread: "t" });
    await expect(one.sandbox.files.stat("/a")).rejects.toMatchObject({
      code: "file_not_found",
      details: { path: "/a" },
    });
    expect(asked).toHaveLength(2);
  });

  test("ends with the caller's signal", async () => {
    handlers = [
      (_request, response) => refuse(response, 429, "rate_limited", { scope: "s", max: 1, retryAfterMs: 60_000 }),
    ];
    const controller = new AbortController();
    const acquiring = client.acquire({ thread: "t", signal: controller.signal });
    setTimeout(() => controller.abort(new Error("enough")), 50);
    await expect(acquiring).rejects.toThrow("enough");
  });

  test("a response without an error of the contract keeps its status", async () => {
    handlers = [(_request, response) => response.writeHead(502).end("<html>bad gateway</html>")];
    await expect(client.acquire({ thread: "t" })).rejects.toMatchObject({ code: "internal" });
  });
});

const events = (response: ServerResponse, list: readonly (readonly [string, object])[]) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const [event, data] of list) response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
};
const output = (offset: number, text: string) => ["stdout", { stream: "stdout", offset, base64: btoa(text) }] as const;
const END = {
  execId: "x",
  status: "completed",
  exitCode: 0,
  signal: null,
  stdoutBytes: 6,
  stderrBytes: 0,
  durationMs: 1,
};

test("a switch to another protocol is no answer", async () => {
  handlers.push((request) => {
    request.socket.end("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n");
  });
  await expect(client.acquire({ thread: "t" })).rejects.toMatchObject({ code: "sandbox_unreachable" });
});

/** Kept, because a response that is garbage closes its connection by itself. */
const responses: Response[] = [];
const keepingFetch = async (...given: Parameters<typeof fetch>) => {
  const response = await fetch(...given);
  responses.push(response);
  return response;
};

test.each([
  ["node:http", {}],
  ["fetch", { fetch: keepingFetch }],
])(
  "a stream of another protocol is closed, over %s",
  async (_, options) => {
    const closed = new Promise<void>((resolve) => {
      handlers.push((_request, response) => {
        response.on("close", resolve);
        response.writeHead(200, { "content-type": "text/event-stream", "x-sandlot-protocol": "2.0" });
        response.write(": here\n\n");
      });
    });
    const asking = new SandlotClient({ url: `http://127.0.0.1:${port()}`, apiKey: "key", ...options });
    await expect(asking.events().next()).rejects.toMatchObject({ code: "protocol_incompatible" });
    await closed;
  },
  10_000,
);

describe("streams", () => {
  test("go on where they broke, and where the gateway ended them", async () => {
    handlers = [
      lease,
      (request, response) => {
        events(response, [output(0, "ab")]);
        setTimeout(() => request.socket.destroy(), 20);
      },
      (_request, response) => {
        events(response, [output(2, "cd"), ["resume", { execId: "x", stdoutOffset: 4, stderrOffset: 0 }]]);
        response.end();
      },
      (_request, response) => {
        events(response, [output(4, "ef"), ["exit", END]]);
        response.end();
      },
    ];
    await using one = await client.acquire({ thread: "t" });
    let text = "";
    let exitCode: number | null = null;
    for await (const event of one.sandbox.execs.follow("x")) {
      if (event.type === "output") text += new TextDecoder().decode(event.bytes);
      if (event.type === "end") exitCode = event.end.exitCode;
    }
    expect([text, exitCode]).toEqual(["abcdef", 0]);
    expect(asked.filter((one) => one.includes("output")).map((one) => /stdoutOffset=(\d)/.exec(one)?.[1])).toEqual([
      "0",
      "2",
      "4",
    ]);
  });

  test("of a file go on in the same version of it", async () => {
    handlers = [
      lease,
      (request, response) => {
        response.writeHead(200, { "content-length": "6", etag: '"v1"' }).write("abc");
        setTimeout(() => request.socket.destroy(), 20);
      },
      (request, response) => {
        expect(request.headers).toMatchObject({ range: "bytes=3-", "if-match": '"v1"' });
        response.writeHead(206, { "content-length": "3", etag: '"v1"' }).end("def");
      },
    ];
    await using one = await client.acquire({ thread: "t" });
    expect(new TextDecoder().decode(await one.sandbox.files.read("/a"))).toBe("abcdef");
  });

  test("are taken up again later each time, by downloads too, and not for ever", async () => {
    const askedAt: number[] = [];
    const cut: Handler = (request, response) => {
      askedAt.push(performance.now());
      response.writeHead(200, { "content-length": "6", etag: '"v1"' }).flushHeaders();
      setTimeout(() => request.socket.destroy(), 1);
    };
    handlers = [lease, ...Array.from({ length: 20 }, () => cut)];
    await using one = await client.acquire({ thread: "t" });
    await expect(one.sandbox.files.read("/a")).rejects.toMatchObject({ code: "sandbox_unreachable" });
    expect(askedAt).toHaveLength(6);
    const waited = askedAt.slice(1).map((at, index) => at - (askedAt[index] ?? 0));
    for (const [index, leastMs] of [25, 50, 100, 200, 400].entries())
      expect(waited[index]).toBeGreaterThanOrEqual(leastMs - 2);
    handlers = [];
  });

  test("that begun go on when too many ask for a while", async () => {
    const limited: Handler = (_request, response) =>
      refuse(response, 429, "rate_limited", { scope: "open streams", max: 1, retryAfterMs: 1 });
    const patient = new SandlotClient({ url: `http://127.0.0.1:${port()}`, retriesMax: 0 });
    handlers = [
      lease,
      (request, response) => {
        events(response, [output(0, "ab")]);
        setTimeout(() => request.socket.destroy(), 20);
      },
      limited,
      limited,
      (_request, response) => {
        events(response, [output(2, "cdef"), ["exit", END]]);
        response.end();
      },
    ];
    await using one = await patient.acquire({ thread: "t" });
    let text = "";
    for await (const event of one.sandbox.execs.follow("x"))
      if (event.type === "output") text += new TextDecoder().decode(event.bytes);
    expect(text).toBe("abcdef");
    // The caller itself must repeat a request that has not begun.
    handlers = [limited];
    const beginning = one.sandbox.execs.follow("x")[Symbol.asyncIterator]().next();
    await expect(beginning).rejects.toMatchObject({ code: "rate_limited" });
    handlers = [];
  });
});

describe("a lease", () => {
  test("is renewed, and released once", async () => {
    handlers = [lease, (_request, response) => json(response, 200, { leaseId: "l1", expiresAt: 1 })];
    const one = await client.acquire({ thread: "t", ttlMs: 1_000 });
    await expect.poll(() => asked).toContain("PUT /v1/leases/l1");
    await Promise.all([one.release(), one.release()]);
    expect(asked.filter((one) => one.startsWith("DELETE"))).toEqual(["DELETE /v1/leases/l1"]);
    await expect(one.sandbox.exec("ls")).rejects.toMatchObject({ code: "lease_released" });
  });

  test("that the gateway no longer knows is lost, and says so", async () => {
    handlers = [lease, (_request, response) => refuse(response, 404, "lease_not_found", { leaseId: "l1" })];
    const one = await client.acquire({ thread: "t", ttlMs: 300 });
    const reason = await new Promise((resolve) => one.onLost((loss) => resolve(loss.reason)));
    expect(reason).toBe("expired");
    await expect(one.sandbox.exec("ls")).rejects.toMatchObject({ code: "lease_not_found" });
  });

  test("moves on to the generation that answers", async () => {
    const newer: Handler = (_request, response) => json(response, 200, RESULT, { "x-sandlot-generation": "8" });
    const recovery = { kind: "empty", lost: ["workspace"], survived: [] };
    const present = { sandboxId: "s2", generation: 8, recovery };
    const renewed: Handler = (_request, response) => json(response, 200, { leaseId: "l1", expiresAt: 1, present });
    handlers = [lease, newer, renewed, newer];
    await using one = await client.acquire({ thread: "t" });
    const { sandbox } = one;
    const lost: number[] = [];
    one.onLost(({ generation }) => lost.push(generation));
    await sandbox.exec("ls");
    expect([one.generation, lost, one.recovery, one.sandbox.id]).toEqual([8, [7], recovery, "s2"]);
    await expect(sandbox.exec("ls")).rejects.toMatchObject({ code: "stale_generation", details: { current: 8 } });
    await one.sandbox.exec("ls");
    expect(asked.filter((one) => one.startsWith("PUT"))).toEqual(["PUT /v1/leases/l1"]);
  });

  test("says what a crash leaves where the gateway cannot tell", async () => {
    const newer: Handler = (_request, response) => json(response, 200, RESULT, { "x-sandlot-generation": "8" });
    handlers = [lease, newer, (_request, response) => json(response, 200, { leaseId: "l1", expiresAt: 1 })];
    await using one = await client.acquire({ thread: "t" });
    await one.sandbox.exec("ls");
    expect([one.generation, one.recovery.kind, one.recovery.survived]).toEqual([8, "restored", ["workspace"]]);
  });
});

describe("a command that is aborted", () => {
  const begun = (running: () => void): Handler => {
    return () => running();
  };
  const killed = (found: boolean): Handler => {
    return (_request, response) => json(response, 200, { found });
  };
  const released: Handler = (_request, response) => json(response, 204, null);

  test("is ended although its lease is, and is looked for again where it had not begun", async () => {
    const controller = new AbortController();
    let running: () => void = () => undefined;
    const ran = new Promise<void>((resolve) => (running = resolve));
    handlers = [lease, begun(running), released, killed(false), killed(true)];
    const one = await client.acquire({ thread: "t" });
    const command = one.sandbox.exec("sleep 60", { execId: "x", signal: controller.signal });
    await ran;
    await one.release();
    controller.abort(new Error("enough"));
    await expect(command).rejects.toThrow("enough");
    const kills = () => asked.filter((one) => one === "POST /v1/threads/t/execs/x/kill");
    await expect.poll(kills).toHaveLength(2);
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(kills()).toHaveLength(2);
  });

  test("is ended also where it was only to be begun", async () => {
    const controller = new AbortController();
    handlers = [lease, () => controller.abort(new Error("enough")), killed(true)];
    await using one = await client.acquire({ thread: "t" });
    const spawning = one.sandbox.spawn("sleep 60", { execId: "x", signal: controller.signal });
    await expect(spawning).rejects.toThrow("enough");
    expect(asked).toContain("POST /v1/threads/t/execs/x/kill");
  });
});

describe("whose, and for how long", () => {
  test("another user is named in every request; one that may not be is refused and nothing is used", async () => {
    const users: unknown[] = [];
    const noting: Handler = (request, response) => {
      users.push(request.headers["x-sandlot-user"]);
      json(response, 201, LEASE);
    };
    handlers = [
      noting,
      (request, response) => {
        users.push(request.headers["x-sandlot-user"]);
        json(response, 200, RESULT);
      },
    ];
    const held = await client.acquire({ thread: "t", user: "bob" });
    await held.sandbox.exec("true");
    await held.release();
    expect(users).toEqual(["bob", "bob"]);
    handlers = [(_request, response) => refuse(response, 403, "forbidden", { problem: "its own user only" })];
    await expect(client.acquire({ thread: "t", user: "eve" })).rejects.toMatchObject({ code: "forbidden" });
  });

  test("without a thread it gets one of its own, which goes with the lease", async () => {
    handlers = [lease];
    const held = await client.acquire();
    await held.release();
    const [made = "", released, removed] = asked;
    const thread = /^POST \/v1\/threads\/(own-[0-9a-f-]{36})\/leases$/.exec(made)?.[1];
    expect(thread).toBeDefined();
    expect([released, removed]).toEqual(["DELETE /v1/leases/l1", `DELETE /v1/threads/${thread}?force=true`]);
    handlers = [lease];
    await (await client.acquire()).release();
    expect(asked[3]).not.toBe(made);
  });

  test("waits at most as long as requested", async () => {
    handlers = [() => undefined];
    const acquiring = client.acquire({ thread: "t", timeoutMs: 50 });
    await expect(acquiring).rejects.toMatchObject({ code: "acquire_timeout" });
  });
});

describe("a gateway that restarts", () => {
  const output = (text: string, offset: number) =>
    `event: stdout\ndata: ${JSON.stringify({ stream: "stdout", offset, base64: btoa(text) })}\n\n`;
  const stream =
    (text: string): Handler =>
    (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(text, () => response.destroy());
    };

  test("a follower waits for it, and a first request does not", async () => {
    const end = {
      execId: "x",
      status: "completed",
      exitCode: 0,
      signal: null,
      stdoutBytes: 7,
      stderrBytes: 0,
      durationMs: 1,
    };
    const recovering: Handler = (_request, response) =>
      refuse(response, 503, "sandbox_unreachable", { sandboxId: "s1", problem: "p", retryAfterMs: 1 });
    handlers = [lease, stream(output("one ", 0)), ...Array.from({ length: 6 }, () => broken), recovering];
    handlers.push(stream(`${output("two", 4)}event: exit\ndata: ${JSON.stringify(end)}\n\n`));
    const held = await client.acquire({ thread: "t" });
    let text = "";
    for await (const event of held.sandbox.execs.follow("x"))
      if (event.type === "output") text += new TextDecoder().decode(event.bytes);
    expect(text).toBe("one two");
    handlers = Array.from({ length: 20 }, () => broken);
    const beginning = held.sandbox.execs.follow("x")[Symbol.asyncIterator]().next();
    await expect(beginning).rejects.toMatchObject({ code: "sandbox_unreachable" });
    await held.release();
  });
});
