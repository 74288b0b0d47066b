/** Previews: links, cookies, HTTP and WebSocket into a port, on another origin than the gateway's. */

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, request as httpRequest, type IncomingHttpHeaders, type Server } from "node:http";
import { request as httpsRequest } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { richBackend } from "./support/rich-backend.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let inner: Server;
let port: number;
let seen: IncomingHttpHeaders = {};

beforeAll(async () => {
  stage = await openStage({ enrich: richBackend });
  alice = await stage.user("alice");
  for (const thread of ["p", "q"])
    await alice.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command: "true" } });
  inner = createServer((request, response) => {
    seen = request.headers;
    response.setHeader("set-cookie", ["own=1; Domain=localhost; Path=/", "sandlot-link=forged", "sandlot-frame=f"]);
    if (request.url === "/policy") response.setHeader("content-security-policy", "default-src *");
    request.pipe(response.writeHead(request.method === "POST" ? 201 : 200, { "x-path": request.url ?? "" }));
    if (request.method === "GET") response.write(`you asked ${request.url}`);
  });
  new WebSocketServer({ server: inner }).on("connection", (socket) => {
    socket.on("message", (data) => socket.send(`echo ${data}`));
  });
  await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
  port = (inner.address() as AddressInfo).port;
});
afterAll(async () => {
  await stage.done();
  inner.closeAllConnections();
  await new Promise((resolve) => inner.close(resolve));
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** To the previews' listener, under any name. */
function ask(url: URL, headers: Record<string, string> = {}, method = "GET", body = ""): Promise<Answer> {
  const { port: at } = new URL(stage.gateway.previewUrl);
  return new Promise((resolve, reject) => {
    const path = `${url.pathname}${url.search}`;
    const sent = httpRequest(
      { host: "127.0.0.1", port: at, path, method, headers: { host: url.host, ...headers } },
      (answer) => {
        let text = "";
        answer.on("data", (piece) => (text += piece));
        answer.on("end", () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: text }));
      },
    );
    sent.on("error", reject).end(body);
  });
}

async function link(thread: string, to = port): Promise<URL> {
  const reply = await alice.ask<{ url: string; expiresAt: number }>(
    201,
    "POST",
    `/v1/threads/${thread}/ports/${to}/links`,
    {
      json: { ttlMs: 60_000 },
    },
  );
  expect(Object.keys(reply).sort()).toEqual(["direct", "expiresAt", "url"]);
  return new URL(reply.url);
}

async function visit(url: URL): Promise<string> {
  const { headers } = await ask(url, { accept: "text/html" });
  return (headers["set-cookie"] ?? []).map((cookie) => cookie.split(";")[0]).join("; ");
}

describe("a preview", () => {
  test("turns a link into a cookie, and then leads to the port", async () => {
    const url = await link("p");
    expect(url.host).toMatch(new RegExp(`^${port}--[0-9a-f]{24}\\.localhost:\\d+$`));
    expect(url.host).not.toBe(new URL(stage.gateway.url).host);
    const first = await ask(new URL(`/app/page?a=1&${url.search.slice(1)}`, url), { accept: "text/html" });
    expect([first.status, first.headers.location]).toEqual([302, "/app/page?a=1"]);
    expect(first.headers["set-cookie"]?.[0]).toMatch(/HttpOnly; SameSite=Lax/);
    const cookie = first.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    const answer = await ask(new URL("/app/page?a=1", url), { cookie: `mine=2; ${cookie}` });
    expect([answer.status, answer.body]).toEqual([200, "you asked /app/page?a=1"]);
    expect(seen.cookie).toBe("mine=2");
    expect(seen.host).toBe(`localhost:${port}`);
    expect(answer.headers["set-cookie"]).toEqual(["own=1; Path=/"]);
    const posted = await ask(new URL("/form", url), { cookie }, "POST", "body text");
    expect([posted.status, posted.body]).toEqual([201, "body text"]);
  });

  test("in a frame has a cookie of that page's site, and says who may frame it", async () => {
    const reply = await alice.ask<{ url: string }>(201, "POST", `/v1/threads/p/ports/${port}/links`, {
      json: { frame: true },
    });
    const url = new URL(reply.url);
    const first = await ask(url, { "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe" });
    const [cookie = ""] = first.headers["set-cookie"] ?? [];
    expect(cookie).toMatch(/^sandlot-frame=[\w.-]+; Path=\/; HttpOnly; SameSite=None; Secure; Partitioned$/);
    const framed = await ask(new URL("/app", url), { cookie: `own=1; ${cookie.split(";")[0]}` });
    expect(framed.status).toBe(200);
    expect(framed.headers["content-security-policy"]).toBe(`frame-ancestors ${stage.gateway.url}`);
    expect(seen.cookie).toBe("own=1");
    // What the program inside says holds beside it.
    const both = await ask(new URL("/policy", url), { cookie: cookie.split(";")[0] ?? "" });
    expect(both.headers["content-security-policy"]).toBe(`default-src *, frame-ancestors ${stage.gateway.url}`);
    // One kind does not stand for the other, and an ordinary link says nothing about frames.
    const token = cookie.split(";")[0]?.split("=")[1] ?? "";
    expect((await ask(new URL("/app", url), { cookie: `sandlot-link=${token}` })).status).toBe(401);
    const usual = await visit(await link("p"));
    const plain = await ask(new URL("/app", url), { cookie: usual });
    expect([plain.status, plain.headers["content-security-policy"]]).toEqual([200, undefined]);
    const swapped = usual.replace("sandlot-link", "sandlot-frame");
    expect((await ask(new URL("/app", url), { cookie: swapped })).status).toBe(401);
  });

  test("takes a program's link with each request, in the address or in a header, under a name that resolves", async () => {
    const url = await link("p");
    const token = url.searchParams.get("sandlot-link") ?? "";
    for (const method of ["GET", "POST"]) {
      const inAddress = await ask(new URL(`/a?sandlot-link=${token}`, url), { accept: "*/*" }, method);
      expect([inAddress.status, inAddress.headers["x-path"]]).toEqual([method === "POST" ? 201 : 200, "/a"]);
    }
    const answer = await fetch(`${stage.gateway.previewUrl}/a/b?c=1`, { headers: { "x-sandlot-link": token } });
    expect([answer.status, await answer.text()]).toEqual([200, "you asked /a/b?c=1"]);
    expect(Object.keys(seen)).not.toContain("x-sandlot-link");
    for (const headers of [{ "x-sandlot-link": `${token}x` }, { cookie: `sandlot-link=${token}` }])
      expect((await fetch(`${stage.gateway.previewUrl}/`, { headers })).status).toBe(401);
    expect((await fetch(`${stage.gateway.previewUrl}/?sandlot-link=${token}`)).status).toBe(401);
  });

  test("has a link for programs, whose name resolves", async () => {
    const { direct } = await alice.ask<{ direct: { url: string; headers: Record<string, string> } }>(
      201,
      "POST",
      `/v1/threads/p/ports/${port}/links`,
    );
    expect(direct.url).toBe(stage.gateway.previewUrl);
    const answer = await fetch(`${direct.url}/from/a/program`, { headers: direct.headers });
    expect([answer.status, await answer.text()]).toEqual([200, "you asked /from/a/program"]);
  });

  test("carries a WebSocket", async () => {
    const url = await link("p");
    const cookie = await visit(url);
    const socket = new WebSocket(`${stage.gateway.previewUrl.replace("http", "ws")}/hmr`, [], {
      headers: { host: url.host, cookie, origin: url.origin },
    });
    const reply = await new Promise((resolve, reject) => {
      socket.once("open", () => socket.send("hot"));
      socket.once("message", (data) => resolve(String(data)));
      socket.once("error", reject);
    });
    expect(reply).toBe("echo hot");
    socket.terminate();
    const foreign = new WebSocket(`${stage.gateway.previewUrl.replace("http", "ws")}/hmr`, [], {
      headers: { host: url.host, cookie, origin: "https://evil.example" },
    });
    await expect(new Promise((_, reject) => foreign.once("error", reject))).rejects.toThrow("403");
  });

  test("is closed without a link, with a forged one, and for another name", async () => {
    const url = await link("p");
    expect((await ask(new URL("/", url))).status).toBe(401);
    const token = url.searchParams.get("sandlot-link") ?? "";
    for (const forged of [`${token}x`, `x${token}`, "x.y", ""])
      expect((await ask(new URL(`/?sandlot-link=${forged}`, url))).status).toBe(401);
    const other = await link("q");
    expect(other.host).not.toBe(url.host);
    expect((await ask(new URL(`/?sandlot-link=${token}`, other))).status).toBe(401);
    expect((await ask(new URL("/", other), { cookie: await visit(url) })).status).toBe(401);
    const elsewhere = await link("p", 9);
    expect((await ask(new URL(`/?sandlot-link=${token}`, elsewhere))).status).toBe(401);
  });

  test("ends with its time", async () => {
    const { url } = await alice.ask<{ url: string }>(201, "POST", `/v1/threads/p/ports/${port}/links`, {
      json: { ttlMs: 3_000 },
    });
    const cookie = await visit(new URL(url));
    const status = async () => (await ask(new URL("/", url), { cookie })).status;
    expect(await status()).toBe(200);
    await expect.poll(status, { interval: 100 }).toBe(401);
  });

  test("of a port on which nothing listens is unreachable, and says so", async () => {
    const url = await link("p", 9);
    const answer = await ask(new URL("/", url), { cookie: await visit(url) });
    expect(answer.status).toBe(503);
    expect(JSON.parse(answer.body).error.code).toBe("sandbox_unreachable");
  });

  test("cannot call the gateway", async () => {
    const url = await link("p");
    const { port: at } = new URL(stage.gateway.url);
    const status = await new Promise((resolve) => {
      const headers = { host: `localhost:${at}`, origin: url.origin, authorization: `Bearer ${alice.key}` };
      httpRequest({ host: "127.0.0.1", port: at, path: "/v1/threads/p/execs", headers }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      }).end();
    });
    expect(status).toBe(403);
    const wrongHost = await new Promise((resolve) => {
      httpRequest({ host: "127.0.0.1", port: at, path: "/healthz", headers: { host: url.host } }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      }).end();
    });
    expect(wrongHost).toBe(403);
  });
});

test("a backend without previews says so", async () => {
  const plain = await openStage();
  try {
    const bob = await plain.user("bob");
    await bob.ask(200, "POST", "/v1/threads/p/exec", { json: { command: "true" } });
    const { url } = await bob.ask<{ url: string }>(201, "POST", "/v1/threads/p/ports/3000/links");
    const previewPort = new URL(plain.gateway.previewUrl).port;
    const at = new URL(url);
    const get = (path: string, headers: Record<string, string>) =>
      new Promise<Answer>((resolve) => {
        httpRequest({ host: "127.0.0.1", port: previewPort, path, headers }, (answer) => {
          let body = "";
          answer.on("data", (piece) => (body += piece));
          answer.on("end", () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body }));
        }).end();
      });
    const first = await get(`/${at.search}`, { host: at.host, accept: "text/html" });
    const cookie = first.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    const answer = await get("/", { host: at.host, cookie });
    expect([answer.status, JSON.parse(answer.body).error.code]).toEqual([501, "capability_missing"]);
    await bob.ask(501, "GET", "/v1/threads/p/files/watch?path=/mnt/user-data");
    await bob.ask(501, "POST", "/v1/threads/p/sessions", { json: {} });
  } finally {
    await plain.done();
  }
});

test("with a certificate the previews are encrypted too, and their cookie stays so", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandlot-tls-"));
  const [certFile, keyFile] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"];
  execFileSync("openssl", [...made, "-keyout", keyFile, "-out", certFile], { stdio: "ignore" });
  const secured = await openStage({ enrich: richBackend, settings: { tls: { certFile, keyFile } } });
  const ask = (address: string, headers: Record<string, string>, method = "GET") =>
    new Promise<Answer>((resolve, reject) => {
      const ca = readFileSync(certFile);
      const trust = { ca, servername: "localhost", checkServerIdentity: () => undefined };
      const sent = httpsRequest(address, { method, headers, ...trust }, (answer) => {
        let body = "";
        answer.on("data", (piece) => (body += piece));
        answer.on("end", () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body }));
      });
      sent.on("error", reject).end();
    });
  try {
    expect(new URL(secured.gateway.url).protocol).toBe("https:");
    const { key } = await secured.user("alice");
    const authorization = `Bearer ${key}`;
    await (await secured.fleet.acquire({ user: "alice", thread: "p" })).release();
    const at = `${secured.gateway.url}/v1/threads/p/ports/${port}/links`;
    const { url } = JSON.parse((await ask(at, { authorization }, "POST")).body) as { url: string };
    expect(url).toMatch(new RegExp(`^https://${port}--[0-9a-f]{24}\\.localhost:\\d+/`));
    const { host, search } = new URL(url);
    const welcome = await ask(`${secured.gateway.previewUrl}/${search}`, { host, accept: "text/html" });
    expect(welcome.headers["set-cookie"]?.[0]).toMatch(/^__Host-sandlot-link=.*; Path=\/; .*; Secure$/);
    const bare = (welcome.headers["set-cookie"]?.[0] ?? "").split(";")[0]?.replace("__Host-", "") ?? "";
    expect((await ask(`${secured.gateway.previewUrl}/page`, { host, cookie: bare })).status).toBe(401);
    const cookie = welcome.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    const shown = await ask(`${secured.gateway.previewUrl}/page`, { host, cookie });
    expect([shown.status, shown.body]).toEqual([200, "you asked /page"]);
  } finally {
    await secured.done();
    await rm(folder, { recursive: true });
  }
});
