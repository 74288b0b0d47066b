/** AIO URLs: the AIO API of a sandbox for clients that send neither key nor cookie; and the handling of the secret. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { AIO_TUNNEL_PORT, type AioUrl } from "@sandlot/contract";
import pino from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Attachment, Backend, Target } from "../../src/backend/backend.ts";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import type { Fleet } from "../../src/fleet.ts";
import { type PreviewParts, PreviewServer } from "../../src/gateway/previews/preview-server.ts";
import { type Gateway, startGateway } from "../../src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { hasBubblewrap } from "./support/gateway-process.ts";
import { richBackend } from "./support/rich-backend.ts";
import { Caller, openStage, type Stage } from "./support/stage.ts";

const urlOf = (caller: Caller, thread: string, json: object = {}) =>
  caller.ask<AioUrl>(201, "POST", `/v1/threads/${thread}/aio`, { json });
const secretOf = ({ url, linkId }: AioUrl) => new URL(url).pathname.slice("/aio/".length + linkId.length);

/** As a client of the AIO API connects: with an address and nothing else. */
async function post<T>(address: string, body: object): Promise<T> {
  const headers = { "content-type": "application/json" };
  const response = await fetch(address, { method: "POST", headers, body: JSON.stringify(body) });
  expect(response.status, address.replace(/[0-9a-f]{96}/, "…")).toBe(200);
  return (await response.json()) as T;
}

describe.skipIf(!hasBubblewrap)("with real sandboxes (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "sla-"));
  const logged: string[] = [];
  let fleet: Fleet;
  let gateway: Gateway;
  let alice: Caller;

  beforeAll(async () => {
    ({ fleet } = await openFleetAndHost({ home, backend: "local" }));
    const lines = new Writable({
      write(chunk, _encoding, done) {
        logged.push(String(chunk));
        done();
      },
    });
    const logger = pino({ level: "trace" }, lines);
    gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 }, logger });
    alice = new Caller(gateway.url, (await gateway.keys.create({ scope: "user", user: "alice" })).key);
  }, 60_000);

  afterAll(async () => {
    await fleet.destroy({ thread: "deer", user: "alice" }, { force: true, purge: true });
    await gateway.close();
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true });
  }, 60_000);

  test("commands and files go through the URL, which no log, audit entry, file or sandbox has", async () => {
    const link = await urlOf(alice, "deer");
    const { url } = link;
    expect(url.startsWith(`${gateway.previewUrl}/aio/`)).toBe(true);
    expect(url.endsWith("/")).toBe(false);

    const about = await fetch(`${url}/v1/sandbox`);
    expect(about.status).toBe(200);
    expect(await about.json()).toMatchObject({ home_dir: expect.any(String) });
    expect(about.headers.get("referrer-policy")).toBe("no-referrer");

    const file = "/mnt/user-data/workspace/note.txt";
    await post(`${url}/v1/file/write`, { file, content: "from deerflow\n" });
    const read = await post<{ data: { content: string } }>(`${url}/v1/file/read`, { file });
    expect(read.data.content).toBe("from deerflow\n");
    const ran = await post<{ data: { output: string; exit_code: number } }>(`${url}/v1/shell/exec`, {
      command: `cat ${file}; env; cat /proc/*/cmdline | tr '\\0' ' '`,
    });
    expect(ran.data).toMatchObject({ exit_code: 0, output: expect.stringContaining("from deerflow") });
    // A file written there belongs to the thread, and every other view shows it.
    const seen = await alice.ask<{ stdout: string }>(200, "POST", "/v1/threads/deer/exec", {
      json: { command: "cat note.txt" },
    });
    expect(seen.stdout).toBe("from deerflow\n");

    expect((await fetch(`${url.slice(0, -1)}${url.endsWith("0") ? "1" : "0"}/v1/sandbox`)).status).toBe(401);
    await new Promise((resolve) => setTimeout(resolve, 200));
    const secret = secretOf(link);
    expect(secret).toMatch(/^[0-9a-f]{48}$/);
    expect(logged.join("")).toContain("/v1/threads/:thread/aio");
    const kept = readdirSync(join(home, "aio-urls")).map((name) => readFileSync(join(home, "aio-urls", name), "utf8"));
    expect(kept).toHaveLength(1);
    const audited = readFileSync(join(home, "audit/audit.jsonl"), "utf8");
    expect(audited).toContain("/v1/threads/:thread/aio");
    for (const text of [logged.join(""), audited, ...kept, ran.data.output]) expect(text).not.toContain(secret);
  }, 60_000);

  test("revoking ends a request under way, and the URL for good", async () => {
    const link = await urlOf(alice, "deer");
    const body = JSON.stringify({ command: "sleep 60" });
    const slow = fetch(`${link.url}/v1/shell/exec`, { method: "POST", body }).then(
      ({ status }) => `answered ${status}`,
      () => "cut off",
    );
    await expect
      .poll(async () => (await fleet.find({ thread: "deer", user: "alice" } as never))?.state, { timeout: 20_000 })
      .toBe("leased");
    expect(await alice.ask(200, "DELETE", `/v1/threads/deer/aio/${link.linkId}`)).toEqual({ revoked: 1 });
    expect(await slow).toBe("cut off");
    expect((await fetch(`${link.url}/v1/sandbox`)).status).toBe(401);
    expect(await alice.ask(200, "DELETE", `/v1/threads/deer/aio/${link.linkId}`)).toEqual({ revoked: 0 });
  }, 60_000);
});

describe("with an API that answers what it likes", () => {
  let stage: Stage;
  let alice: Caller;
  let bob: Caller;
  let inner: Server;
  let seen: { url: string; headers: IncomingHttpHeaders } = { url: "", headers: {} };

  beforeAll(async () => {
    inner = createServer((request, response) => {
      seen = { url: request.url ?? "", headers: request.headers };
      if (request.url?.startsWith("/redirect")) {
        response.writeHead(302, { location: "http://169.254.0.1" }).end();
        return;
      }
      const headers = { "set-cookie": "a=1", "access-control-allow-origin": "*", "referrer-policy": "unsafe-url" };
      response.writeHead(200, { "content-type": "text/html", ...headers }).end("<script>1</script>");
    });
    await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
    const { port } = inner.address() as AddressInfo;
    stage = await openStage({ enrich: (backend) => servingAio(richBackend(backend), port) });
    alice = await stage.user("alice");
    bob = await stage.user("bob");
  });
  afterAll(async () => {
    await stage.done();
    inner.closeAllConnections();
    await new Promise((resolve) => inner.close(resolve));
  });

  test("the secret and the caller's own headers stay outside", async () => {
    const link = await urlOf(alice, "a");
    const headers = {
      ...{ cookie: "mine=1", authorization: "Bearer x", "x-api-key": "k", referer: link.url, "x-sandlot-link": "l" },
      ...{ "x-original-uri": link.url, "x-forwarded-uri": link.url, "user-agent": "agent-sandbox" },
    };
    for (const address of [`${link.url}/v1/x?y=%20z`, `${link.url}//v1/x?y=%20z`]) {
      expect((await fetch(address, { headers })).status).toBe(200);
      expect(seen.url).toBe("/v1/x?y=%20z");
      expect(JSON.stringify(seen.headers)).not.toContain(secretOf(link));
      for (const name of ["cookie", "authorization", "x-api-key", "referer", "x-sandlot-link", "x-forwarded-host"])
        expect(seen.headers).not.toHaveProperty(name);
      expect(seen.headers["user-agent"]).toBe("agent-sandbox");
    }
    expect((await fetch(link.url)).status).toBe(200);
    expect(seen.url).toBe("/");
  });

  test("a response can set no cookie, open no page to other origins and redirect no client", async () => {
    const { url } = await urlOf(alice, "a");
    const { headers } = await fetch(`${url}/v1/page`);
    expect(headers.get("set-cookie")).toBeNull();
    expect(headers.get("access-control-allow-origin")).toBeNull();
    expect(headers.get("referrer-policy")).toBe("no-referrer");
    expect(headers.get("content-security-policy")).toContain("sandbox");
    expect((await fetch(`${url}/redirect`, { redirect: "manual" })).status).toBe(502);
    expect((await fetch(`${url}/v1/page`, { headers: { origin: "https://evil.example" } })).status).toBe(403);
  });

  test("a URL that is wrong, of another thread's id, expired or revoked is refused", async () => {
    const link = await urlOf(alice, "a");
    const other = await urlOf(alice, "b");
    const status = async (address: string) => (await fetch(`${address}/v1/sandbox`)).status;
    const at = `${stage.gateway.previewUrl}/aio/`;
    expect(await status(link.url)).toBe(200);
    for (const wrong of [
      ...["", "x", "..", "0".repeat(96), `${link.linkId}${"0".repeat(48)}`, `${other.linkId}${secretOf(link)}`],
      ...[`${link.linkId}${secretOf(link)}0`, link.linkId, `${"f".repeat(48)}${secretOf(link)}`],
    ])
      expect(await status(`${at}${wrong}`), wrong).toBe(401);

    const short = await urlOf(alice, "a", { ttlMs: 1_000 });
    expect(short.expiresAt).toBeGreaterThan(Date.now());
    await expect.poll(() => status(short.url), { interval: 100 }).toBe(401);

    // Bob's thread of the same name is another one: Bob can neither revoke this URL nor reach it.
    expect(await bob.ask(200, "DELETE", `/v1/threads/a/aio/${link.linkId}`)).toEqual({ revoked: 0 });
    expect(await bob.ask(200, "DELETE", "/v1/threads/a/aio")).toEqual({ revoked: 0 });
    expect(await status(link.url)).toBe(200);
    const bobs = await urlOf(bob, "a");
    expect(bobs.linkId.slice(0, 24)).not.toBe(link.linkId.slice(0, 24));
    expect(await status(`${at}${link.linkId}${secretOf(bobs)}`)).toBe(401);

    expect(await alice.ask<{ revoked: number }>(200, "DELETE", "/v1/threads/a/aio")).toMatchObject({
      revoked: expect.any(Number),
    });
    expect(await status(link.url)).toBe(401);
    expect([await status(other.url), await status(bobs.url)]).toEqual([200, 200]);
  });

  test("a thread has so many and no more, expired ones go, and all go with the thread", async () => {
    const files = () => readdirSync(join(stage.home, "aio-urls"));
    const short = await urlOf(alice, "many", { ttlMs: 1_000 });
    expect(existsSync(join(stage.home, "aio-urls", `${short.linkId}.json`))).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const links = await Promise.all(Array.from({ length: 60 }, () => urlOf(alice, "many")));
    expect(files()).not.toContain(`${short.linkId}.json`);
    for (let more = 0; more < 4; more += 1) await urlOf(alice, "many");
    const refused = await alice.ask<{ error: { message: string } }>(422, "POST", "/v1/threads/many/aio", { json: {} });
    expect(refused.error.message).toContain("DELETE /v1/threads/many/aio");
    await alice.ask(200, "POST", "/v1/threads/many/exec", { json: { command: "true" } });
    await alice.ask(200, "DELETE", "/v1/threads/many?force=true");
    expect((await fetch(`${links[0]?.url}/v1/sandbox`)).status).toBe(401);
    expect(files().filter((name) => name.startsWith(short.linkId.slice(0, 24)))).toEqual([]);
  });

  test("a gateway that starts later takes the URL", async () => {
    const { url } = await urlOf(alice, "later");
    const again = await startGateway({
      fleet: stage.fleet,
      home: stage.home,
      world: systemWorld(),
      settings: { port: 0 },
    });
    try {
      const { pathname } = new URL(url);
      expect((await fetch(`${again.previewUrl}${pathname}/v1/sandbox`)).status).toBe(200);
      await alice.ask(200, "DELETE", "/v1/threads/later/aio");
      expect((await fetch(`${again.previewUrl}${pathname}/v1/sandbox`)).status).toBe(401);
    } finally {
      await again.close();
    }
  });
});

test("a backend that cannot serve it says so", async () => {
  const stage = await openStage();
  try {
    const { url } = await urlOf(await stage.user("alice"), "a");
    const answer = await fetch(`${url}/v1/sandbox`);
    expect([answer.status, ((await answer.json()) as { error: { code: string } }).error.code]).toEqual([
      501,
      "capability_missing",
    ]);
  } finally {
    await stage.done();
  }
});

test("a URL that ends while it is looked up takes no lease", async () => {
  let acquired = 0;
  const use = async (_address: unknown, end: () => void) => {
    end();
    await new Promise((resolve) => setTimeout(resolve, 20));
    return {
      claims: { user: "alice", thread: "a", keyId: "k", expiresAt: Date.now() + 60_000 },
      [Symbol.dispose]: () => undefined,
    };
  };
  const acquireExisting = async () => {
    acquired += 1;
    throw new Error("none is to be had");
  };
  const threads = { acquireExisting, release: async () => undefined };
  const { server, close } = previewServer({ aioLinks: { use } as never, threads });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await expect(fetch(`http://127.0.0.1:${port}/aio/${"0".repeat(96)}/v1/sandbox`)).rejects.toThrow();
  await new Promise((resolve) => setTimeout(resolve, 100));
  await close();
  expect(acquired).toBe(0);
});

function previewServer(parts: Pick<PreviewParts, "aioLinks" | "threads">) {
  const keys = { find: () => ({ scope: "operator", blueprints: null }) as never };
  const rates = { checkFailures: () => undefined, countFailure: () => undefined };
  const rest = { links: {} as never, rates, keys, logger: pino({ level: "silent" }) as never, certificate: null };
  const made = new PreviewServer({ ...parts, ...rest, world: systemWorld(), settings: resolveGatewaySettings() });
  return { server: made.server, close: () => made.close() };
}

/** The tunnel's port leads to a server of this machine. */
function servingAio(backend: Backend, port: number): Backend {
  return new Proxy(backend, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (name !== "attach") return value;
      return async (to: Target, signal: AbortSignal): Promise<Attachment> => ({
        ...(await target.attach(to, signal)),
        connect: async (asked) => {
          expect(asked).toBe(AIO_TUNNEL_PORT);
          return connect(port, "127.0.0.1");
        },
      });
    },
  });
}
