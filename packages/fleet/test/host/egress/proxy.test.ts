/** The proxy against real servers, in its own namespaces. */

import { Agent } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { NetworkPolicy } from "../../../src/backend/network/policy.ts";
import { OUTSIDE, OWN, PORTS, SILENT } from "./stage/addresses.ts";
import { ask, openTunnel, readAll, readSome, sayRaw } from "./stage/clients.ts";
import { NetworkStage, type ProxyWish, type StagedProxy, stageProblem } from "./stage/stage.ts";

const problem = stageProblem("curl");
let stage: NetworkStage;

beforeAll(async () => {
  if (problem === null) stage = await NetworkStage.open();
});
afterAll(async () => {
  if (problem === null) await stage.close();
});
beforeEach((context) => {
  if (problem !== null) context.skip(problem);
});

const ALLOW: NetworkPolicy["allow"] = [
  { host: "web.example.com", ports: [80, 443, 7_000, 7_001, 8_081] },
  { host: "*.cdn.example.com", ports: [80] },
  { host: OUTSIDE.public, ports: [80] },
  { host: OUTSIDE.private, ports: [80] },
  { host: "inner.example.com", ports: [80], addresses: [OUTSIDE.private] },
];

async function proxyWith(wish: Partial<ProxyWish> = {}): Promise<StagedProxy> {
  return stage.proxy({
    policy: { mode: "allowlist", allow: ALLOW, secrets: [] },
    answers: {
      "web.example.com": [[OUTSIDE.public]],
      "a.cdn.example.com": [[OUTSIDE.publicV6]],
      "inner.example.com": [[OUTSIDE.private]],
    },
    ...wish,
  });
}

describe("the stage itself", () => {
  it("reaches everything without a proxy: what is refused below is refused by the proxy", async () => {
    for (const address of [...Object.values(OUTSIDE), OWN.v4, OWN.v6]) {
      const host = address.includes(":") ? `[${address}]` : address;
      const text = await stage.run("curl", "-sS", "--noproxy", "*", "-m", "5", `http://${host}/`);
      expect([address, text]).toEqual([address, expect.stringMatching(/^(own|\{)/)]);
    }
  });
});

describe("plain requests", () => {
  it("are passed on as they are, with what belongs to the hop taken out", async () => {
    const proxy = await proxyWith();
    const answer = await ask(proxy.socketPath, {
      url: "http://WEB.example.com./a/../b//c?x=%2e%2e&y=1",
      method: "POST",
      headers: {
        host: "elsewhere.example.org",
        connection: "close, x-drop",
        "x-drop": "1",
        "x-keep": ["one", "two"],
        "proxy-authorization": "Basic eDp5",
        "proxy-connection": "keep-alive",
        te: "trailers",
        "keep-alive": "timeout=5",
      },
      body: "hello",
    });
    const seen = JSON.parse(answer.body);
    expect(answer.status).toBe(200);
    expect(seen).toMatchObject({
      method: "POST",
      url: "/a/../b//c?x=%2e%2e&y=1",
      bodyBytes: 5,
      localAddress: expect.stringContaining(OUTSIDE.public),
    });
    expect(seen.headers).toMatchObject({ host: "web.example.com", "x-keep": "one, two" });
    for (const name of ["x-drop", "proxy-authorization", "proxy-connection", "te", "keep-alive"]) {
      expect(seen.headers).not.toHaveProperty(name);
    }
    await proxy.close();
  });

  it("go over IPv6, and to a literal address in any spelling", async () => {
    const proxy = await proxyWith();
    const overSix = await ask(proxy.socketPath, { url: "http://a.cdn.example.com/" });
    expect(JSON.parse(overSix.body).localAddress).toBe(OUTSIDE.publicV6);
    const literal = await ask(proxy.socketPath, { url: "http://0x5db8d822/" });
    expect(JSON.parse(literal.body).headers.host).toBe(OUTSIDE.public);
    await proxy.close();
  });

  it("share a client's connection, and the connection to the host", async () => {
    const proxy = await proxyWith();
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const ports = new Set<number>();
    for (let round = 0; round < 5; round += 1) {
      const answer = await ask(proxy.socketPath, { url: "http://web.example.com/", agent });
      ports.add(JSON.parse(answer.body).remotePort);
    }
    expect(ports.size).toBe(1);
    expect(await proxy.stats()).toMatchObject({ openConnections: 1, requests: 5, refused: 0 });
    agent.destroy();
    await proxy.close();
  });

  it("stream large bodies both ways, and count them", async () => {
    const proxy = await proxyWith();
    const bytes = 64 * 1_024 * 1_024;
    const up = await ask(proxy.socketPath, {
      url: "http://web.example.com/",
      method: "PUT",
      body: Buffer.alloc(bytes),
    });
    expect(JSON.parse(up.body).bodyBytes).toBe(bytes);
    const down = await ask(proxy.socketPath, { url: `http://web.example.com/download?bytes=${bytes}` });
    expect(down.body.length).toBe(bytes);
    const { bytesUp, bytesDown } = await proxy.stats();
    expect(bytesUp).toBeGreaterThan(bytes);
    expect(bytesDown).toBeGreaterThan(bytes);
    await proxy.close();
  });

  it("break visibly when the host breaks off", async () => {
    const proxy = await proxyWith();
    await expect(ask(proxy.socketPath, { url: "http://web.example.com/break" })).rejects.toThrow(/aborted|hang up/);
    await proxy.close();
  });

  it("get a status page from the proxy itself", async () => {
    const proxy = await proxyWith();
    await ask(proxy.socketPath, { url: "http://evil.example/" });
    const page = await ask(proxy.socketPath, { url: "/" });
    expect(page.body).toContain("web.example.com:80,443");
    expect(page.body).toContain("evil.example:80 not-allowed");
    await proxy.close();
  });
});

describe("tunnels", () => {
  it("carry bytes, early ones too, and end in halves", async () => {
    const proxy = await proxyWith();
    const { socket, status } = await openTunnel(proxy.socketPath, "web.example.com:7001", "early");
    expect(status).toBe(200);
    socket.end(" and late");
    expect(await readAll(socket)).toBe("got 14\n");
    await proxy.close();
  });

  it("bring the end of the host to the client, and the client's death to the host", async () => {
    const proxy = await proxyWith();
    const { socket } = await openTunnel(proxy.socketPath, "web.example.com:7000");
    socket.write("ping");
    expect(await readSome(socket)).toBe("ping");
    expect((await proxy.stats()).openConnections).toBe(1);
    socket.destroy();
    await expect.poll(async () => (await proxy.stats()).openConnections).toBe(0);
    await expect.poll(() => stage.run("ss", "-Htn", "state", "established", "dport", "=", ":7000")).toBe("");
    await proxy.close();
  });

  it("are closed when unused, half-open ones sooner", async () => {
    const proxy = await proxyWith({ limits: { idleTimeoutMs: 1_500, halfOpenTimeoutMs: 300 } });
    const idle = await openTunnel(proxy.socketPath, "web.example.com:7000");
    const half = await openTunnel(proxy.socketPath, "web.example.com:8081");
    half.socket.end("x");
    const started = Date.now();
    const ended = async (socket: typeof idle.socket) => {
      await new Promise((resolve) => socket.once("close", resolve).resume());
      return Date.now() - started;
    };
    const [idleMs, halfMs] = await Promise.all([ended(idle.socket), ended(half.socket)]);
    expect(halfMs).toBeLessThan(idleMs);
    expect(idleMs).toBeGreaterThan(1_200);
    expect(idleMs).toBeLessThan(30_000);
    await proxy.close();
  });
});

describe("refusals", () => {
  it("come in words, with an event, for a plain request and for a tunnel", async () => {
    const proxy = await proxyWith();
    const plain = await ask(proxy.socketPath, { url: "http://evil.example:8080/x" });
    expect(plain.status).toBe(403);
    expect(plain.body).toMatch(/refused the connection to evil\.example:8080/);
    expect(plain.body).toContain("Rule: not-allowed");
    expect(plain.body).toContain('{"host":"evil.example","ports":[8080]}');
    const tunnel = await openTunnel(proxy.socketPath, "evil.example:443");
    expect(tunnel.head).toMatch(/^HTTP\/1\.1 403 Forbidden by Sandlot: evil\.example:443 not-allowed\r\n/);
    expect(tunnel.head).toContain("refused the connection to evil.example:443");
    await expect
      .poll(() => proxy.refusals.map(({ host, port, rule }) => [host, port, rule]))
      .toEqual([
        ["evil.example", 8_080, "not-allowed"],
        ["evil.example", 443, "not-allowed"],
      ]);
    // The tried names stay unknown outside.
    expect(await stage.lookups()).not.toContain("evil.example");
    await proxy.close();
  });

  const everywhere: NetworkPolicy = { mode: "open", allow: [], secrets: [] };

  it.each([
    ["private", [OUTSIDE.private]],
    ["metadata", [OUTSIDE.metadata]],
    ["carrier", [OUTSIDE.carrier]],
    ["privateV6", [OUTSIDE.privateV6]],
    ["mapped", [`::ffff:${OUTSIDE.private}`]],
    ["nat64", [`64:ff9b::${OUTSIDE.private}`]],
    ["loopback", ["127.0.0.1", "::1"]],
    ["unspecified", ["0.0.0.0", "::"]],
    ["own", [OWN.v4]],
    ["own6", [OWN.v6]],
  ])("are for names that lead to %s addresses, in open mode too", async (name, addresses) => {
    const proxy = await proxyWith({ policy: everywhere, answers: { "trick.example": [addresses] } });
    const plain = await ask(proxy.socketPath, { url: "http://trick.example/" });
    const tunnel = await openTunnel(proxy.socketPath, "trick.example:80");
    expect([name, plain.status, tunnel.status]).toEqual([name, 403, 403]);
    expect(proxy.refusals).toHaveLength(2);
    await proxy.close();
  });

  it.each([
    "10.20.30.40 0x0a141e28 169090600 012.024.036.050 10.1318440 169.254.169.254 0xa9fea9fe 2852039166 127.1 0 localhost.",
    "[::ffff:10.20.30.40] [::ffff:a14:1e28] [64:ff9b::a14:1e28] [fd00:ec2::254] [::1] [::] [2002:a14:1e28::1]",
    `${OWN.v4} [${OWN.v6}] 1572395009`,
  ])("are for literal addresses in every spelling: %s", async (list) => {
    const proxy = await proxyWith({ policy: everywhere, answers: { localhost: [["127.0.0.1"]] } });
    for (const host of list.split(" ")) {
      const plain = await ask(proxy.socketPath, { url: `http://${host}/` });
      const tunnel = await openTunnel(proxy.socketPath, `${host}:80`);
      expect([host, plain.status, tunnel.status]).toEqual([host, 403, 403]);
    }
    await proxy.close();
  });

  it("hold against an answer that changes: what was judged is what is connected to", async () => {
    const answers = { "web.example.com": [[OUTSIDE.public], [OUTSIDE.private], [OUTSIDE.private, OUTSIDE.publicToo]] };
    const proxy = await proxyWith({ answers });
    const before = (await stage.lookups()).length;
    // A body makes each request open its own connection.
    const post = () => ask(proxy.socketPath, { url: "http://web.example.com/", method: "POST", body: "x" });
    expect(JSON.parse((await post()).body).localAddress).toContain(OUTSIDE.public);
    expect((await stage.lookups()).length - before).toBe(1);
    expect((await post()).status).toBe(403);
    expect(JSON.parse((await post()).body).localAddress).toContain(OUTSIDE.publicToo);
    await proxy.close();
  });

  it("end where a rule names the address", async () => {
    const proxy = await proxyWith();
    const inner = await ask(proxy.socketPath, { url: "http://inner.example.com/" });
    expect(JSON.parse(inner.body).localAddress).toContain(OUTSIDE.private);
    expect((await ask(proxy.socketPath, { url: `http://${OUTSIDE.private}/` })).status).toBe(403);
    await proxy.close();
  });
});

describe("targets that are not reached", () => {
  it("has three errors: no such name, no listener, no answer", async () => {
    const proxy = await proxyWith({
      limits: { dialTimeoutMs: 1_200, addressTimeoutMs: 400 },
      policy: { mode: "open", allow: [], secrets: [] },
      answers: {
        "closed.example": [[OUTSIDE.public]],
        "silent.example": [[SILENT]],
        "second.example": [[SILENT, OUTSIDE.public]],
        "hanging.example": [[]],
      },
    });
    const status = async (url: string) => {
      const { status: code, body } = await ask(proxy.socketPath, { url });
      return [code, body];
    };
    expect(await status("http://unknown.example/")).toEqual([502, expect.stringContaining("ENOTFOUND")]);
    expect(await status("http://closed.example:81/")).toEqual([502, expect.stringContaining("ECONNREFUSED")]);
    expect((await status("http://silent.example/"))[0]).toBe(504);
    expect((await status("http://hanging.example/"))[0]).toBe(504);
    expect((await status("http://second.example/"))[0]).toBe(200);
    expect(proxy.refusals).toEqual([]);
    await proxy.close();
  });
});

describe("bad clients", () => {
  it.each([
    ["user information", "GET http://web.example.com@evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["user information that ends in an allowed host", "GET http://evil@web.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["a backslash", "GET http://web.example.com\\@evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["another scheme", "GET ftp://web.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["https without a tunnel", "GET https://web.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["a path alone", "GET /x HTTP/1.1\r\nHost: web.example.com\r\n\r\n"],
    [
      "two lengths",
      "POST http://web.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    ],
    [
      "length and chunks",
      "POST http://web.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    [
      "chunked twice",
      "POST http://web.example.com/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ],
    ["a folded header", "GET http://web.example.com/ HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n"],
    ["a space before the colon", "GET http://web.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc"],
    ["a bare newline", "GET http://web.example.com/ HTTP/1.1\nHost: x\n\n"],
    ["no HTTP at all", "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"],
    ["a tunnel without a port", "CONNECT web.example.com HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["a tunnel with user information", "CONNECT web.example.com:80@evil.example:80 HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["a trace", "TRACE http://web.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"],
  ])("get nowhere with %s", async (_, bytes) => {
    const proxy = await proxyWith();
    expect(await sayRaw(proxy.socketPath, bytes)).toMatch(/^HTTP\/1\.1 40[05] /);
    await proxy.close();
  });

  it("get a refusal, not a request, when the name to reach hides in a header", async () => {
    const proxy = await proxyWith();
    const answer = await sayRaw(proxy.socketPath, "GET http://evil.example/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n");
    expect(answer).toMatch(/^HTTP\/1\.1 403 /);
    await proxy.close();
  });

  it("are cut off when their head is too large or too slow", async () => {
    const proxy = await proxyWith({ limits: { headTimeoutMs: 500, headBytesMax: 4_096 } });
    const large = `GET http://web.example.com/ HTTP/1.1\r\nHost: x\r\nA: ${"a".repeat(8_000)}\r\n\r\n`;
    expect(await sayRaw(proxy.socketPath, large)).toMatch(/^HTTP\/1\.1 431 /);
    const started = Date.now();
    expect(await sayRaw(proxy.socketPath, "GET http://web.example.com/ HTTP/1.1\r\nHo")).toMatch(/^HTTP\/1\.1 408 /);
    expect(Date.now() - started).toBeLessThan(5_000);
    await proxy.close();
  });

  it("cannot have more connections than there may be", async () => {
    const proxy = await proxyWith({ limits: { connectionsMax: 4 } });
    const tunnels = await Promise.all(
      Array.from({ length: 4 }, () => openTunnel(proxy.socketPath, "web.example.com:7000")),
    );
    await expect(openTunnel(proxy.socketPath, "web.example.com:7000")).rejects.toThrow();
    expect(await proxy.stats()).toMatchObject({ openConnections: 4, dropped: 1 });
    for (const { socket } of tunnels) socket.destroy();
    await expect.poll(async () => (await proxy.stats()).openConnections).toBe(0);
    expect((await openTunnel(proxy.socketPath, "web.example.com:7000")).status).toBe(200);
    await proxy.close();
  });

  it("that read slowly hold up themselves, and no memory", async () => {
    const proxy = await proxyWith();
    const { socket } = await openTunnel(proxy.socketPath, `web.example.com:${PORTS.http}`);
    socket.write("GET /download?bytes=200000000 HTTP/1.1\r\nHost: web.example.com\r\n\r\n");
    await sleep(1_000);
    // The buffers of the kernel and of Node, and not all that the host would like to send.
    expect((await proxy.stats()).bytesDown).toBeLessThan(20_000_000);
    socket.destroy();
    await proxy.close();
  });
});

describe("taking over", () => {
  it("leaves the path to the newest, and existing connections open", async () => {
    const first = await proxyWith();
    const old = await openTunnel(first.socketPath, "web.example.com:7000");
    const second = await proxyWith({ at: { socketPath: first.socketPath } });
    expect((await ask(first.socketPath, { url: "http://web.example.com/" })).status).toBe(200);
    expect(await second.stats()).toMatchObject({ requests: 1 });
    old.socket.write("still");
    expect(await readSome(old.socket)).toBe("still");
    await first.close();
    expect((await ask(first.socketPath, { url: "http://web.example.com/" })).status).toBe(200);
    await second.close();
  });
});
