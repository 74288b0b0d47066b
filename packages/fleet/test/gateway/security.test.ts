/** Authorisation: keys, scopes, Host, Origin, limits. */

import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { get as httpsGet } from "node:https";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PROTOCOL_VERSION } from "@sandlot/contract";
import pino from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import { Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let bob: Caller;

beforeAll(async () => {
  stage = await openStage();
  alice = await stage.user("alice");
  bob = await stage.user("bob");
});
afterAll(() => stage.done());

describe("keys", () => {
  test("are needed everywhere but for the health checks", async () => {
    const nobody = new Caller(stage.gateway.url, "");
    expect(await nobody.ask(200, "GET", "/healthz")).toEqual({ status: "ok", protocol: PROTOCOL_VERSION });
    expect(await nobody.ask(200, "GET", "/readyz")).toEqual({ status: "ready", checks: { store: "ok" } });
    for (const path of [
      "/metrics",
      "/v1/sandboxes",
      "/v1/threads/t/execs",
      "/openapi.json",
      "/docs",
      "/no/such/route",
    ]) {
      const { error } = await nobody.ask<{ error: Record<string, unknown> }>(401, "GET", path);
      expect(error).toMatchObject({ code: "unauthorized", retryable: false, details: { problem: "no key was sent" } });
      expect(Object.keys(error).sort()).toEqual(["code", "details", "message", "remedy", "requestId", "retryable"]);
    }
    await new Caller(stage.gateway.url, "slk_000000000000_nonsense").ask(401, "GET", "/v1/sandboxes");
    await new Caller(stage.gateway.url, `${alice.key.slice(0, -1)}x`).ask(401, "GET", "/v1/threads/t/execs");
  });

  test("are taken from X-API-Key as well", async () => {
    const other = new Caller(stage.gateway.url, "").with({ "x-api-key": alice.key });
    await other.ask(200, "GET", "/v1/threads/t/execs");
  });

  test("lie hashed in files that only their owner reads", async () => {
    const directory = join(stage.home, "keys");
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      expect((await stat(path)).mode & 0o777).toBe(0o600);
      const text = await readFile(path, "utf8");
      for (const { key } of [alice, bob, stage.operator]) expect(text).not.toContain(key.split("_")[2]);
    }
    expect((await stat(join(stage.home, "operator.key"))).mode & 0o777).toBe(0o600);
  });

  test("stop working when they are revoked", async () => {
    const carol = await stage.user("carol");
    await carol.ask(200, "GET", "/v1/threads/t/execs");
    const listed = await stage.gateway.keys.list();
    const { id } = listed.find(({ user }) => user === "carol") ?? { id: "" };
    expect(await stage.gateway.keys.revoke(id)).toBe(true);
    await carol.ask(401, "GET", "/v1/threads/t/execs");
    expect(await stage.gateway.keys.revoke(id)).toBe(false);
    expect(await stage.gateway.keys.revoke("../operator.key")).toBe(false);
  });

  test("of a user act for that user only", async () => {
    await alice.with({ "x-sandlot-user": "bob" }).ask(403, "GET", "/v1/threads/t/execs");
    await alice.with({ "x-sandlot-user": "alice" }).ask(200, "GET", "/v1/threads/t/execs");
  });

  test("of a platform act for the named user", async () => {
    await stage.platform.ask(422, "GET", "/v1/threads/t/execs");
    await stage.platform.with({ "x-sandlot-user": "no/such user" }).ask(422, "GET", "/v1/threads/t/execs");
    await alice.ask(200, "POST", "/v1/threads/shared/exec", { json: { command: "echo secret > note" } });
    const asAlice = stage.platform.with({ "x-sandlot-user": "alice" });
    expect(await asAlice.ask(200, "POST", "/v1/threads/shared/exec", { json: { command: "cat note" } })).toMatchObject({
      stdout: "secret\n",
    });
    const asBob = stage.platform.with({ "x-sandlot-user": "bob" });
    expect(await asBob.ask(200, "POST", "/v1/threads/shared/exec", { json: { command: "ls" } })).toMatchObject({
      stdout: "",
    });
  });

  test("of users and platforms do not open what is for operators", async () => {
    const paths = ["/v1/audit", "/v1/keys", "/metrics"];
    for (const caller of [alice, stage.platform.with({ "x-sandlot-user": "alice" })])
      for (const path of paths) await caller.ask(403, "GET", path);
  });
});

/** fetch sets Host itself, so this goes to the socket. */
function raw(headers: Record<string, string>, path = "/healthz", method = "GET"): Promise<number> {
  const { port } = new URL(stage.gateway.url);
  return new Promise((resolve, reject) => {
    const sent = httpRequest({ host: "127.0.0.1", port, path, method, headers }, (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    });
    sent.on("error", reject);
    sent.end();
  });
}

describe("web pages", () => {
  test("under a foreign name get nothing", async () => {
    const { port } = new URL(stage.gateway.url);
    expect(await raw({ host: `127.0.0.1:${port}` })).toBe(200);
    expect(await raw({ host: `localhost:${port}` })).toBe(200);
    expect(await raw({ host: `[::1]:${port}` })).toBe(200);
    for (const host of [
      `evil.example:${port}`,
      "127.0.0.1:1",
      "localhost.evil.example",
      `127.0.0.1.evil.example:${port}`,
    ])
      expect(`${host} ${await raw({ host })}`).toBe(`${host} 403`);
  });

  test("that name two hosts at once are malformed, at the gateway and at its previews", async () => {
    const ask = (base: string, target: (host: string) => string, more: (host: string) => string) => {
      const { port, hostname, host } = new URL(base);
      const socket = connect(Number(port), hostname);
      socket.write(`GET ${target(host)} HTTP/1.1\r\nHost: ${host}\r\n${more(host)}Connection: close\r\n\r\n`);
      return new Promise<number>((resolve) => {
        let text = "";
        socket.on("data", (piece) => (text += piece));
        socket.on("close", () => resolve(Number(text.split(" ")[1])));
      });
    };
    for (const [base, well] of [
      [stage.gateway.url, 200],
      [stage.gateway.previewUrl, 401],
    ] as const) {
      const none = () => "";
      expect(await ask(base, () => "/healthz", none)).toBe(well);
      expect(await ask(base, (host) => `http://${host}/healthz`, none)).toBe(well);
      expect(
        await ask(
          base,
          () => "/healthz",
          () => "Host: evil.example\r\n",
        ),
      ).toBe(400);
      expect(
        await ask(
          base,
          () => "/healthz",
          (host) => `hOST: ${host}\r\n`,
        ),
      ).toBe(400);
      expect(await ask(base, () => "http://evil.example/healthz", none)).toBe(400);
      expect(await ask(base, (host) => `http://${host}@evil.example/healthz`, none)).toBe(400);
    }
  });

  test("of another origin get nothing, whatever they send", async () => {
    const { host, origin } = new URL(stage.gateway.url);
    const authorization = `Bearer ${alice.key}`;
    expect(await raw({ host, origin, authorization }, "/v1/threads/t/execs")).toBe(200);
    for (const other of ["https://evil.example", "null", `http://localhost:1`, `https://${host}`])
      expect(await raw({ host, origin: other, authorization }, "/v1/threads/t/execs")).toBe(403);
    expect(await raw({ host, "sec-fetch-site": "cross-site", authorization }, "/v1/threads/t/execs")).toBe(403);
    expect(await raw({ host, "sec-fetch-site": "same-site", authorization }, "/v1/threads/t/execs")).toBe(403);
    expect(await raw({ host, "sec-fetch-site": "same-origin", authorization }, "/v1/threads/t/execs")).toBe(200);
    expect(await raw({ host, origin: "https://evil.example" }, "/v1/threads/t/uploads", "POST")).toBe(403);
  });

  test("get no permission from CORS", async () => {
    const response = await alice.call("OPTIONS", "/v1/threads/t/execs", {
      headers: { "access-control-request-method": "POST" },
    });
    expect(response.headers.get("access-control-allow-origin")).toBeNull();
  });
});

describe("limits", () => {
  test("on bodies and headers", async () => {
    await alice.ask(413, "POST", "/v1/threads/t/exec", { json: { command: "x".repeat(5 * 1024 * 1024) } });
    expect(await raw({ host: new URL(stage.gateway.url).host, "x-long": "x".repeat(20_000) })).toBe(431);
  });

  test("have one shape, also for bytes that are no request", async () => {
    const { port, hostname, host } = new URL(stage.gateway.url);
    const told = (text: string) =>
      new Promise<string>((resolve) => {
        let received = "";
        const socket = connect(Number(port), hostname, () => socket.write(text));
        socket.on("data", (piece) => (received += piece)).on("error", () => undefined);
        socket.on("close", () => resolve(received));
      });
    const nonsense = await told("NONSENSE\r\n\r\n");
    expect(nonsense).toMatch(/^HTTP\/1\.1 400 /);
    expect(nonsense).toContain('"error":{"code":"invalid_request"');
    const long = await told(`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Long: ${"x".repeat(20_000)}\r\n\r\n`);
    expect(long).toMatch(/^HTTP\/1\.1 431 /);
    expect(long).toContain('"error":{"code":"payload_too_large"');
  });

  test("beyond loopback demand TLS or a proxy that has it", () => {
    expect(() => resolveGatewaySettings({ host: "0.0.0.0" })).toThrow(/beyond loopback/);
    expect(() => resolveGatewaySettings({ prot: 5 } as never)).toThrow(/at gateway\.prot: .*Did you mean port\?/);
    expect(resolveGatewaySettings({ host: "0.0.0.0", behindProxy: true }).host).toBe("0.0.0.0");
    expect(() => resolveGatewaySettings({ hots: "x" } as never)).toThrow(/gateway/);
  });

  test("on how often one key asks", async () => {
    const small = await openStage({ settings: { rate: { perKeyPerSecond: 1, perUserPerSecond: 1, burst: 3 } } });
    try {
      const dora = await small.user("dora");
      // Together: in sequence, a slow machine would refill the limit meanwhile.
      const answers = await Promise.all(Array.from({ length: 30 }, () => dora.call("GET", "/v1/threads/t/execs")));
      const refused = answers.filter(({ status }) => status === 429);
      expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(3);
      expect(refused.length).toBeGreaterThan(0);
      expect(Number(refused[0]?.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
      await (await small.user("ella")).ask(200, "GET", "/v1/threads/t/execs");
    } finally {
      await small.done();
    }
  });

  test("on how long a client takes to send its headers", async () => {
    const slow = await openStage({ settings: { headersTimeoutMs: 300 } });
    try {
      const { port, hostname } = new URL(slow.gateway.url);
      const socket = connect(Number(port), hostname);
      socket.write("GET /healthz HTTP/1.1\r\nHost:");
      const text = await new Promise<string>((resolve) => {
        let received = "";
        socket.on("data", (piece) => (received += piece));
        socket.on("close", () => resolve(received));
      });
      expect(text).toMatch(/^HTTP\/1\.1 408 /);
      expect(text).toContain('"error":{"code":"wait_timeout"');
    } finally {
      await slow.done();
    }
  });
});

test("guessing keys is slowed down, and valid keys are not", async () => {
  const guarded = await openStage({ settings: { rate: { perAddressFailuresPerMinute: 3 } } });
  try {
    const fred = await guarded.user("fred");
    const guesser = new Caller(guarded.gateway.url, `slk_${"0".repeat(12)}_${"0".repeat(48)}`);
    for (let count = 0; count < 3; count += 1) await guesser.ask(401, "GET", "/v1/threads/t/execs");
    await guesser.ask(429, "GET", "/v1/threads/t/execs");
    await fred.ask(200, "GET", "/v1/threads/t/execs");
  } finally {
    await guarded.done();
  }
});

test("pages of a configured origin may call, with a preflight and without cookies", async () => {
  const open = await openStage({ settings: { allowedOrigins: ["https://app.example"] } });
  try {
    const gina = await open.user("gina");
    const headers = { origin: "https://app.example", "access-control-request-method": "POST" };
    const preflight = await new Caller(open.gateway.url, "").call("OPTIONS", "/v1/threads/t/exec", { headers });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe("https://app.example");
    expect(preflight.headers.get("access-control-allow-credentials")).toBeNull();
    const answer = await gina.call("GET", "/v1/threads/t/execs", { headers: { origin: "https://app.example" } });
    expect([answer.status, answer.headers.get("access-control-allow-origin")]).toEqual([200, "https://app.example"]);
    const foreign = await gina.call("GET", "/v1/threads/t/execs", { headers: { origin: "https://evil.example" } });
    expect(foreign.status).toBe(403);
  } finally {
    await open.done();
  }
});

test("the pages of documentation take a key as a password, and nothing else does", async () => {
  const authorization = `Basic ${Buffer.from(`any:${alice.key}`).toString("base64")}`;
  const browser = new Caller(stage.gateway.url, "").with({ authorization });
  const page = await browser.call("GET", "/docs/");
  expect(page.status).toBe(200);
  expect(await page.text()).toContain("swagger");
  await browser.ask(200, "GET", "/openapi.json");
  await browser.ask(401, "GET", "/v1/threads/t/execs");
  const refused = await new Caller(stage.gateway.url, "").call("GET", "/docs/");
  expect([refused.status, refused.headers.get("www-authenticate")]).toEqual([401, 'Basic realm="Sandlot"']);
});

test("a line of the log names the user, the thread and the key of a request", async () => {
  const logged: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void logged.push(line) });
  const told = await openStage({ more: { logger } });
  try {
    const ann = await told.user("ann");
    await ann.ask(200, "POST", "/v1/threads/seen/exec", { json: { command: "true" } });
    await ann.ask(200, "GET", "/v1/threads");
    const lines = () => logged.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "answered");
    await expect.poll(() => lines().length).toBe(2);
    const [exec, list] = lines();
    expect(exec).toMatchObject({ user: "ann", thread: "seen", status: 200, route: "/v1/threads/:thread/exec" });
    expect(exec.keyId).toEqual(expect.any(String));
    expect(list).toMatchObject({ user: "ann", thread: null });
    expect(logged.join("")).not.toContain(ann.key);
  } finally {
    await told.done();
  }
});

test("with a certificate it speaks HTTPS only", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandlot-tls-"));
  const certFile = join(folder, "cert.pem");
  const keyFile = join(folder, "key.pem");
  const command = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"];
  execFileSync("openssl", [...command, "-keyout", keyFile, "-out", certFile], { stdio: "ignore" });
  const logged: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void logged.push(line) });
  const secure = await openStage({ settings: { tls: { certFile, keyFile } }, more: { logger } });
  try {
    expect(logged.join("")).toContain(`Server listening at ${secure.gateway.url}`);
    const { port } = new URL(secure.gateway.url);
    expect(secure.gateway.url).toBe(`https://127.0.0.1:${port}`);
    const answer = await new Promise<{ status: number; hsts: unknown }>((resolve, reject) => {
      const options = { host: "127.0.0.1", port, path: "/healthz", rejectUnauthorized: false };
      httpsGet(options, (response) => {
        response.resume();
        resolve({ status: response.statusCode ?? 0, hsts: response.headers["strict-transport-security"] });
      }).on("error", reject);
    });
    expect(answer).toEqual({ status: 200, hsts: expect.stringContaining("max-age=") });
    await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
  } finally {
    await secure.done();
    await rm(folder, { recursive: true });
  }
});

describe("the log of a request", () => {
  test("is in the audit log, without secrets", async () => {
    await bob.ask(200, "POST", "/v1/threads/audited/exec", { json: { command: "echo hidden-word" } });
    const { entries } = await stage.operator.ask<{ entries: Record<string, unknown>[] }>(
      200,
      "GET",
      "/v1/audit?user=bob&limit=5",
    );
    expect(entries[0]).toMatchObject({ user: "bob", thread: "audited", status: 200, method: "POST", scope: "user" });
    const read = () => readFile(join(stage.home, "audit", "audit.jsonl"), "utf8");
    await expect.poll(read).toContain('"audited"');
    const text = await read();
    for (const secret of [bob.key, "hidden-word"]) expect(text).not.toContain(secret);
  });

  test("is counted", async () => {
    const response = await stage.operator.call("GET", "/metrics");
    expect(response.headers.get("content-type")).toContain("text/plain");
    const text = await response.text();
    const names = [...text.matchAll(/^# HELP (\S+)/gm)].map(([, name]) => name);
    expect(names.filter((name) => !name?.startsWith("sandlot_"))).toEqual([]);
    expect(text).toMatch(/sandlot_acquire_duration_seconds_count\{path="cold"\} [1-9]/);
    expect(text).toMatch(/sandlot_execs_total\{status="completed"\} [1-9]/);
    expect(text).toMatch(/sandlot_errors_total\{code="unauthorized"\} [1-9]/);
    expect(text).toContain("sandlot_store_up 1");
  });
});
