/** Sessions of the dashboard: how they begin, what they may, how they end, and who cannot use them. */

import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { sseEvents } from "./support/sse.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";
import { openTwoGateways } from "./support/two-gateways.ts";

let stage: Stage;
let alice: Caller;
let bob: Caller;

beforeAll(async () => {
  stage = await openStage();
  alice = await stage.user("alice");
  bob = await stage.user("bob");
});
afterAll(() => stage.done());

const HEADER = { "x-sandlot-dashboard": "1" };

function cookieOf(response: Response): string {
  return response.headers.getSetCookie()[0]?.split(";")[0] ?? "";
}

async function signIn(caller: Caller, url = caller.url): Promise<string> {
  const response = await fetch(`${url}/v1/dashboard/session`, {
    method: "POST",
    headers: { "x-api-key": caller.key, ...HEADER },
  });
  expect(response.status).toBe(201);
  return cookieOf(response);
}

async function linkOf(caller: Caller): Promise<string> {
  const { path } = await caller.ask<{ path: string }>(201, "POST", "/v1/dashboard/links");
  return path.replace("/#link=", "");
}

function redeem(url: string, token: string, headers: Record<string, string> = HEADER): Promise<Response> {
  return fetch(`${url}/v1/dashboard/links/use`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ token }),
  });
}

const ask = (cookie: string, path: string, headers: Record<string, string> = HEADER, method = "GET") =>
  fetch(`${stage.gateway.url}${path}`, { method, headers: { cookie, ...headers } });

test("a key begins a session, whose cookie no script reads and no other site sends", async () => {
  const response = await fetch(`${alice.url}/v1/dashboard/session`, {
    method: "POST",
    headers: { "x-api-key": alice.key, ...HEADER },
  });
  const [cookie = ""] = response.headers.getSetCookie();
  expect(cookie).toMatch(/^sandlot-session-[0-9a-f]{8}=[\w.-]+; Path=\/; Max-Age=43\d{3}; HttpOnly; SameSite=Strict$/);
  expect(cookie).not.toContain(alice.key);
  const { key, expiresAt } = (await response.json()) as { key: { user: string }; expiresAt: number };
  expect(key.user).toBe("alice");
  expect(expiresAt).toBeGreaterThan(Date.now());
  expect((await ask(cookieOf(response), "/v1/threads")).status).toBe(200);
});

test("an unknown key and a missing one begin none", async () => {
  const wrong = `slk_${"0".repeat(12)}_${"0".repeat(48)}`;
  for (const headers of [{ "x-api-key": wrong }, {}]) {
    const response = await fetch(`${alice.url}/v1/dashboard/session`, { method: "POST", headers });
    expect([response.status, response.headers.getSetCookie()]).toEqual([401, []]);
  }
});

describe("a cookie alone does nothing:", () => {
  test("a request needs the dashboard's header", async () => {
    const cookie = await signIn(alice);
    expect((await ask(cookie, "/v1/threads", {})).status).toBe(403);
    expect((await ask(cookie, "/v1/threads/x/stop", {}, "POST")).status).toBe(403);
    expect((await ask(cookie, "/v1/threads")).status).toBe(200);
  });

  test("a request of another origin is refused, also of one that may call with a key", async () => {
    const other = await openStage({ settings: { allowedOrigins: ["http://friend.example"] } });
    try {
      const cookie = await signIn(other.operator);
      const from = (origin: string) =>
        fetch(`${other.gateway.url}/v1/threads`, { headers: { cookie, ...HEADER, origin } });
      expect((await from("http://evil.example")).status).toBe(403);
      expect((await from("http://friend.example")).status).toBe(403);
      expect((await from(other.gateway.url)).status).toBe(200);
      const { headers } = await from("http://friend.example");
      expect(headers.get("access-control-allow-credentials")).toBeNull();
    } finally {
      await other.done();
    }
  });

  test("a WebSocket needs this gateway's origin", async () => {
    const cookie = await signIn(alice);
    await alice.ask(200, "POST", "/v1/threads/socket/exec", { json: { command: "true" } });
    const open = (headers: Record<string, string>) =>
      new Promise<string>((resolve) => {
        const url = `${stage.gateway.url.replace("http", "ws")}/v1/threads/socket/terminal`;
        const socket = new WebSocket(url, ["sandlot.v1"], { headers: { cookie, ...headers } });
        socket.on("open", () => {
          socket.terminate();
          resolve("open");
        });
        socket.on("unexpected-response", (_request, { statusCode }) => resolve(String(statusCode)));
        socket.on("error", () => resolve("error"));
      });
    expect(await open({})).toBe("403");
    expect(await open({ origin: "http://127.0.0.1:1" })).toBe("403");
    expect(await open({ origin: stage.gateway.url })).not.toMatch(/^40/);
  });
});

test("a forged, changed or expired token is no session", async () => {
  const cookie = await signIn(alice);
  const [name = "", token = ""] = cookie.split("=");
  const [body = ""] = token.split(".");
  const claims = JSON.parse(Buffer.from(body, "base64url").toString());
  const signed = (secret: string, change: object) => {
    const text = Buffer.from(JSON.stringify({ ...claims, ...change })).toString("base64url");
    return `${name}=${text}.${createHmac("sha256", secret).update(`dashboard\n${text}`).digest("base64url")}`;
  };
  const hex = (await readFile(join(stage.home, "preview.secret"), "utf8")).trim();
  const secret = createHmac("sha256", Buffer.from(hex, "hex")).update("derived\ndashboard").digest("hex").slice(0, 48);
  // The control: with the gateway's own secret it is accepted.
  expect((await ask(signed(secret, {}), "/v1/threads")).status).toBe(200);
  for (const forged of [
    signed("guessed", {}),
    `${name}=${body}.`,
    `${name}=${body}`,
    signed(secret, { e: Date.now() - 1 }),
    signed(secret, { p: "link" }),
    signed(secret, { k: "000000000000" }),
    `${cookie}x`,
  ])
    expect((await ask(forged, "/v1/threads")).status, forged).toBe(401);
});

test("a link works once, and only for the page that opens it", async () => {
  const token = await linkOf(alice);
  expect((await redeem(alice.url, token, {})).status).toBe(403);
  expect((await redeem(alice.url, token, { ...HEADER, origin: "http://evil.example" })).status).toBe(403);
  const [first, second] = await Promise.all([redeem(alice.url, token), redeem(alice.url, token)]);
  expect([first?.status, second?.status].sort()).toEqual([201, 401]);
  expect((await redeem(alice.url, token)).status).toBe(401);
  const session = first?.status === 201 ? first : second;
  expect((await ask(cookieOf(session as Response), "/v1/threads")).status).toBe(200);
  // Neither is the other.
  expect(
    (await ask(`${cookieOf(session as Response).split("=")[0]}=${await linkOf(alice)}`, "/v1/threads")).status,
  ).toBe(401);
});

test("a session begins no other one", async () => {
  const cookie = await signIn(alice);
  expect((await ask(cookie, "/v1/dashboard/links", HEADER, "POST")).status).toBe(403);
  expect((await ask(cookie, "/v1/dashboard/session", HEADER, "POST")).status).toBe(403);
});

test("signing out ends the session, also a copy of its cookie", async () => {
  const cookie = await signIn(alice);
  const other = await signIn(alice);
  const response = await ask(cookie, "/v1/dashboard/session", HEADER, "DELETE");
  expect(response.status).toBe(204);
  expect(response.headers.getSetCookie()[0]).toContain("Max-Age=0");
  expect((await ask(cookie, "/v1/threads")).status).toBe(401);
  expect((await ask(other, "/v1/threads")).status).toBe(200);
});

test("a revoked key ends its sessions, its links, and a stream that is open", async () => {
  const carol = await stage.user("carol");
  const cookie = await signIn(carol);
  const link = await linkOf(carol);
  const events = await ask(cookie, "/v1/events");
  expect(events.status).toBe(200);
  const reading = (async () => {
    for await (const _ of sseEvents(events));
  })();
  const { id } = await carol.ask<{ id: string }>(200, "GET", "/v1/key");
  await stage.operator.ask(204, "DELETE", `/v1/keys/${id}`);
  // The connection is cut, which a reader sees as an error.
  await expect(reading).rejects.toThrow();
  expect((await ask(cookie, "/v1/threads")).status).toBe(401);
  expect((await redeem(carol.url, link)).status).toBe(401);
});

test("a user's session sees nothing of another's, and no operator's page", async () => {
  await bob.ask(200, "POST", "/v1/threads/secret/exec", { json: { command: "echo hidden > note" } });
  const cookie = await signIn(alice);
  const sandboxes = (await (await ask(cookie, "/v1/sandboxes")).json()) as { sandboxes: { user: string }[] };
  const threads = (await (await ask(cookie, "/v1/threads")).json()) as { threads: { user: string }[] };
  expect([...sandboxes.sandboxes, ...threads.threads].filter(({ user }) => user !== "alice")).toEqual([]);
  const asBob = { ...HEADER, "x-sandlot-user": "bob" };
  for (const path of ["/v1/threads", "/v1/threads/secret", "/v1/threads/secret/explain", "/v1/events"])
    expect((await ask(cookie, path, asBob)).status, path).toBe(403);
  expect((await ask(cookie, "/v1/threads/secret")).status).toBe(404);
  for (const path of ["overview", "configuration", "doctor"])
    expect((await ask(cookie, `/v1/dashboard/${path}`)).status, path).toBe(403);
  for (const path of ["/v1/keys", "/v1/audit"]) expect((await ask(cookie, path)).status, path).toBe(403);
  const operator = await signIn(stage.operator);
  for (const path of ["overview", "configuration", "doctor"])
    expect((await ask(operator, `/v1/dashboard/${path}`)).status, path).toBe(200);
});

test("the overview counts leases by path, losses, and what egress refused", async () => {
  await alice.ask(200, "POST", "/v1/threads/counted/exec", { json: { command: "true" } });
  const overview = await stage.operator.ask<{
    acquires: Record<string, { count: number }>;
    slices: { at: number; created: number }[];
  }>(200, "GET", "/v1/dashboard/overview?bins=60");
  expect(overview.acquires.cold?.count).toBeGreaterThan(0);
  expect(overview.slices.reduce((sum, { created }) => sum + created, 0)).toBeGreaterThan(0);
});

describe("two gateways on one store", () => {
  test("share sessions, links and their ends", async () => {
    const two = await openTwoGateways();
    try {
      const key = await two.user("alice");
      const [a, b] = [two.a.operator.as(key), two.b.operator.as(key)];
      const atB = (cookie: string) => fetch(`${two.b.gateway.url}/v1/threads`, { headers: { cookie, ...HEADER } });
      const cookie = await signIn(a, two.a.gateway.url);
      expect((await atB(cookie)).status).toBe(200);
      const token = await linkOf(a);
      expect((await redeem(two.b.gateway.url, token)).status).toBe(201);
      expect((await redeem(two.a.gateway.url, token)).status).toBe(401);
      await fetch(`${two.a.gateway.url}/v1/dashboard/session`, { method: "DELETE", headers: { cookie, ...HEADER } });
      await expect.poll(async () => (await atB(cookie)).status, { timeout: 10_000 }).toBe(401);
      const again = await signIn(b, two.b.gateway.url);
      const { id } = await a.ask<{ id: string }>(200, "GET", "/v1/key");
      await two.a.operator.ask(204, "DELETE", `/v1/keys/${id}`);
      await expect.poll(async () => (await atB(again)).status, { timeout: 10_000 }).toBe(401);
    } finally {
      await two.done();
    }
  });
});

/** `fetch` sets some of these headers itself. */
function get(path: string, headers: Record<string, string>) {
  return new Promise<{ status: number; headers: Record<string, unknown> }>((resolve, reject) => {
    request(`${stage.gateway.url}${path}`, { headers }, (response) => {
      response.resume().on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers }));
    })
      .on("error", reject)
      .end();
  });
}

test("the pages allow no script of their own and no frame, and a link on any site leads to them", async () => {
  const link = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
  for (const path of ["/", "/sandboxes", "/threads", "/threads/alice/t1", "/administration", "/administration/keys"]) {
    const { status, headers } = await get(path, link);
    expect(status, path).toBe(200);
    const policy = String(headers["content-security-policy"]);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toMatch(/script-src 'self';/);
    expect(policy).toContain("frame-ancestors 'none'");
    expect(headers["x-content-type-options"]).toBe("nosniff");
  }
  // Only to pages, and only to look at them.
  expect((await get("/v1/threads", { ...link, "x-api-key": alice.key })).status).toBe(403);
  expect((await get("/", { ...link, "sec-fetch-mode": "no-cors" })).status).toBe(403);
  expect((await get("/assets/..%2f..%2fpackage.json", {})).status).toBe(404);
});
