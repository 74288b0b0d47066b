/** Following `thread_elsewhere` to another gateway: once, only where told, and never with the key in the clear. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { GATEWAY_HEADERS } from "@sandlot/contract";
import { afterEach, describe, expect, it } from "vitest";
import { Gateways, usableAddress } from "../../src/wire/gateways.ts";
import { Transport } from "../../src/wire/transport.ts";

interface FakeGateway {
  readonly url: string;
  /** `METHOD path`, of every request with a key. */
  readonly asked: string[];
  /** Requests without a key. */
  readonly probes: string[];
  close(): Promise<void>;
}

const open: FakeGateway[] = [];
afterEach(async () => {
  for (const gateway of open.splice(0)) await gateway.close();
});

type Answer = (
  request: IncomingMessage,
  body: string,
) => { readonly status: number; readonly body: unknown; readonly protocol?: string };

async function gateway(answer: Answer, probed: { readonly protocol?: string } = {}): Promise<FakeGateway> {
  const asked: string[] = [];
  const probes: string[] = [];
  const server: Server = createServer((request: IncomingMessage, response: ServerResponse) => {
    let text = "";
    request.on("data", (piece) => (text += piece));
    request.on("end", () => {
      const isProbe = request.headers.authorization === undefined;
      (isProbe ? probes : asked).push(`${request.method} ${request.url}`);
      const healthy = { status: 200, body: { status: "ok" }, ...probed };
      const { status, body, protocol } = isProbe ? healthy : answer(request, text);
      if (protocol !== undefined) response.setHeader(GATEWAY_HEADERS.protocol, protocol);
      response.writeHead(status, { "content-type": "application/json" });
      response.end(typeof body === "string" ? body : JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const made = {
    url: `http://127.0.0.1:${port}`,
    asked,
    probes,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  open.push(made);
  return made;
}

function elsewhere(gateways: unknown) {
  const details = { thread: "t1", engine: "engine-b", gateways };
  const error = { code: "thread_elsewhere", message: "it is elsewhere", retryable: false, details, requestId: "r" };
  return { status: 409, body: { error } };
}

const fine: Answer = (_, body) => ({ status: 200, body: { here: true, body } });
const get = { method: "GET", path: "/v1/threads/t1", repeatable: true } as const;
const anything = { parse: (data: unknown) => data };
const unused = "http://127.0.0.1:9";

describe("a thread that lives at another gateway", () => {
  it("is asked for there with the same request, and from then on at once", async () => {
    const there = await gateway(fine);
    const first = await gateway(() => elsewhere([there.url]));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    const post = { method: "POST", path: "/v1/threads/t1/exec", json: { command: "ls" } } as const;
    expect(await transport.json(anything, post)).toEqual({ here: true, body: '{"command":"ls"}' });
    expect(await transport.json(anything, post)).toMatchObject({ here: true });
    expect(first.asked).toEqual(["POST /v1/threads/t1/exec"]);
    expect(there.asked).toEqual(["POST /v1/threads/t1/exec", "POST /v1/threads/t1/exec"]);
    expect(there.probes).toEqual(["GET /healthz"]);
    expect(transport.address("/v1/threads/t1/terminal", { rows: 2 })).toBe(
      `${there.url}/v1/threads/t1/terminal?rows=2`,
    );
    expect(transport.address("/v1/threads/t2/terminal")).toBe(`${first.url}/v1/threads/t2/terminal`);
  });

  it("is followed once: a second gateway that sends on is the end", async () => {
    const third = await gateway(fine);
    const second = await gateway(() => elsewhere([third.url]));
    const first = await gateway(() => elsewhere([second.url]));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    await expect(transport.json(anything, get)).rejects.toMatchObject({
      code: "thread_elsewhere",
      details: { gateways: [third.url] },
    });
    expect(first.asked.length).toBe(1);
    expect(second.asked.length).toBe(1);
    expect([...third.asked, ...third.probes]).toEqual([]);
  });

  it("is asked for at the first address that answers", async () => {
    const there = await gateway(fine);
    const first = await gateway(() => elsewhere([unused, there.url]));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    expect(await transport.json(anything, get)).toMatchObject({ here: true });
  });

  it("whose gateways are all unreachable is an error with their addresses", async () => {
    const first = await gateway(() => elsewhere([unused]));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    await expect(transport.json(anything, get)).rejects.toMatchObject({
      code: "thread_elsewhere",
      details: { gateways: [unused] },
    });
    expect(first.asked.length).toBe(1);
  });

  it("with advertised addresses that make no sense is an error, and nothing is sent", async () => {
    for (const gateways of [null, "x", [1, {}, "ftp://x", "no url", "http://user:word@127.0.0.1:1"]]) {
      const first = await gateway(() => elsewhere(gateways));
      const transport = new Transport({ url: first.url, apiKey: "secret" });
      await expect(transport.json(anything, get)).rejects.toMatchObject({ code: "thread_elsewhere" });
    }
  });

  it("that came back is asked for at the given gateway again", async () => {
    let isAway = true;
    const there = await gateway(() => (isAway ? { status: 200, body: { at: "there" } } : elsewhere([unused])));
    const first = await gateway(() => (isAway ? elsewhere([there.url]) : { status: 200, body: { at: "first" } }));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    expect(await transport.json(anything, get)).toEqual({ at: "there" });
    isAway = false;
    expect(await transport.json(anything, get)).toEqual({ at: "first" });
    expect(await transport.json(anything, get)).toEqual({ at: "first" });
    expect(there.asked.length).toBe(2);
  });

  it("whose gateway died is asked for at the given one", async () => {
    let isAway = true;
    const there = await gateway(fine);
    const first = await gateway(() => (isAway ? elsewhere([there.url]) : { status: 200, body: { at: "first" } }));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    await transport.json(anything, get);
    await there.close();
    isAway = false;
    expect(await transport.json(anything, get)).toEqual({ at: "first" });
  });

  const post = { method: "POST", path: "/v1/threads/t1/exec", json: { command: "ls" } } as const;
  const unauthorized = { code: "unauthorized", message: "no", retryable: false, details: { problem: "x" } };
  const doubtful: readonly [name: string, isDone: boolean, answer: ReturnType<Answer>][] = [
    ["refuses the key", false, { status: 401, body: { error: { ...unauthorized, requestId: "r" } } }],
    ["speaks another protocol", true, { status: 200, body: { at: "stranger" }, protocol: "99.0" }],
    ["answers without an error of ours", true, { status: 404, body: "<html>not here</html>" }],
  ];
  for (const [name, isDone, answer] of doubtful)
    it(`whose remembered gateway ${name} is asked for at the given one, and the key stays away from there`, async () => {
      for (const call of [get, post]) {
        let isAway = true;
        const there = await gateway((...args) => (isAway ? fine(...args) : answer));
        const first = await gateway(() => (isAway ? elsewhere([there.url]) : { status: 200, body: { at: "first" } }));
        const transport = new Transport({ url: first.url, apiKey: "secret" });
        await transport.json(anything, call);
        isAway = false;
        // A request that may have been done is not repeated; the caller gets the error.
        if (isDone && call === post) await expect(transport.json(anything, call)).rejects.toThrow();
        else expect(await transport.json(anything, call)).toEqual({ at: "first" });
        expect(await transport.json(anything, call)).toEqual({ at: "first" });
        expect(there.asked.length).toBe(2);
      }
    });

  it("whose remembered gateway answers with something else than JSON is asked for at the given one next", async () => {
    let isAway = true;
    const there = await gateway((...args) => (isAway ? fine(...args) : { status: 200, body: "<html>" }));
    const first = await gateway(() => (isAway ? elsewhere([there.url]) : { status: 200, body: { at: "first" } }));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    await transport.json(anything, get);
    isAway = false;
    await expect(transport.json(anything, get)).rejects.toMatchObject({ code: "bad_gateway_response" });
    expect(await transport.json(anything, get)).toEqual({ at: "first" });
    expect(there.asked.length).toBe(2);
  });

  it("gets the error of a gateway that was just named and refuses the key: there is no other place", async () => {
    const there = await gateway(() => ({ status: 401, body: { error: { ...unauthorized, requestId: "r" } } }));
    const first = await gateway(() => elsewhere([there.url]));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    await expect(transport.json(anything, get)).rejects.toMatchObject({ code: "unauthorized" });
    expect([first.asked.length, there.asked.length]).toEqual([1, 1]);
  });

  it("is not followed to a gateway whose health has another protocol", async () => {
    for (const given of [undefined, fetch]) {
      const there = await gateway(fine, { protocol: "99.0" });
      const first = await gateway(() => elsewhere([there.url]));
      const transport = new Transport({ url: first.url, apiKey: "secret", ...(given ? { fetch: given } : {}) });
      await expect(transport.json(anything, get)).rejects.toMatchObject({ code: "thread_elsewhere" });
      expect([there.probes.length, there.asked.length]).toEqual([1, 0]);
    }
  });

  it("is asked for at the given gateway again after a minute", async () => {
    let now = 1_000;
    const gateways = new Gateways(
      "https://given.example",
      async () => true,
      () => now,
    );
    await gateways.follow("t1", ["https://other.example"]);
    now += 59_999;
    expect(gateways.of("t1")).toBe("https://other.example");
    now += 1;
    expect(gateways.of("t1")).toBe("https://given.example");
    expect(gateways.lastOf("t1")).toBe("https://other.example");
    await gateways.follow("t1", ["https://other.example"]);
    expect(gateways.of("t1")).toBe("https://other.example");
  });

  it("takes a lease's renewal, whose path names no thread", async () => {
    const there = await gateway(fine);
    const first = await gateway(() => elsewhere([there.url]));
    const transport = new Transport({ url: first.url, apiKey: "secret" });
    await transport.json(anything, get);
    await transport.json(anything, { method: "PUT", path: "/v1/leases/l1", thread: "t1", repeatable: true });
    expect(there.asked).toEqual(["GET /v1/threads/t1", "PUT /v1/leases/l1"]);
  });

  it("gets bodies that can be sent again; a stream's caller gets the error, and its next try arrives", async () => {
    const there = await gateway(fine);
    const first = await gateway(() => elsewhere([there.url]));
    const put = { method: "PUT", path: "/v1/threads/t1/files/content" } as const;
    const bytes = new Transport({ url: first.url, apiKey: "secret" });
    expect(await bytes.json(anything, { ...put, body: new TextEncoder().encode("bytes") })).toMatchObject({
      body: "bytes",
    });
    const form = new FormData();
    form.append("files", new Blob(["in a form"]), "a.txt");
    const forms = new Transport({ url: first.url, apiKey: "secret" });
    const uploaded = (await forms.json(anything, { ...put, body: form })) as { readonly body: string };
    expect(uploaded.body).toContain("in a form");
    const streams = new Transport({ url: first.url, apiKey: "secret" });
    const stream = () => new Blob(["stream"]).stream();
    await expect(streams.json(anything, { ...put, body: stream() })).rejects.toMatchObject({
      code: "thread_elsewhere",
      details: { gateways: [there.url] },
    });
    expect(await streams.json(anything, { ...put, body: stream() })).toMatchObject({ body: "stream" });
  });

  it("is not followed where the caller says so", async () => {
    const there = await gateway(fine);
    const first = await gateway(() => elsewhere([there.url]));
    const transport = new Transport({ url: first.url, apiKey: "secret", follow: false });
    await expect(transport.json(anything, get)).rejects.toMatchObject({ code: "thread_elsewhere" });
    expect([...there.asked, ...there.probes]).toEqual([]);
  });

  it("is followed over the caller's own fetch", async () => {
    const there = await gateway(fine);
    const first = await gateway(() => elsewhere([there.url]));
    const seen: string[] = [];
    const given: typeof fetch = (input, init) => {
      seen.push(`${new Headers(init?.headers).has("authorization") ? "key" : "no key"} ${String(input)}`);
      return fetch(input, init);
    };
    const transport = new Transport({ url: first.url, apiKey: "secret", fetch: given });
    expect(await transport.json(anything, get)).toMatchObject({ here: true });
    expect(seen).toEqual([
      `key ${first.url}/v1/threads/t1`,
      `no key ${there.url}/healthz`,
      `key ${there.url}/v1/threads/t1`,
    ]);
    const second = new Transport({ url: first.url, apiKey: "secret", fetch: given });
    const post = { method: "POST", path: "/v1/threads/t1/exec", json: { command: "ls" } } as const;
    expect(await second.json(anything, post)).toMatchObject({ body: '{"command":"ls"}' });
  });
});

describe("the addresses that a key may be sent to", () => {
  const cases: readonly [given: string, advertised: string, usable: string | null][] = [
    ["https://gateway.example", "https://other.example/", "https://other.example"],
    ["https://gateway.example", "https://other.example/sandlot/", "https://other.example/sandlot"],
    ["https://gateway.example", "http://other.example", null],
    ["https://gateway.example", "http://127.0.0.1:8750", null],
    ["https://gateway.example", "https://localhost:8750", null],
    ["http://127.0.0.1:8750", "http://127.0.0.1:8760", "http://127.0.0.1:8760"],
    ["http://localhost:8750", "http://[::1]:8760", "http://[::1]:8760"],
    ["http://127.0.0.1:8750", "http://10.0.0.2:8750", null],
    ["http://127.0.0.1:8750", "http://127.0.0.1.example:8750", null],
    ["http://127.0.0.1:8750", "https://10.0.0.2:8750", "https://10.0.0.2:8750"],
    ["http://10.0.0.1:8750", "http://10.0.0.2:8750", "http://10.0.0.2:8750"],
    ["http://10.0.0.1:8750", "http://127.0.0.1:8750", null],
    ["https://gateway.example", "https://user:word@other.example", null],
    ["https://gateway.example", "https://other.example/?x=1", null],
    ["https://gateway.example", "file:///etc/passwd", null],
  ];
  for (const [given, advertised, usable] of cases)
    it(`${given} may send to ${advertised}: ${usable === null ? "no" : "yes"}`, () => {
      expect(usableAddress(given, advertised)).toBe(usable);
    });
});
