/** The remaining rights of a preview link and an AIO URL after their key, their thread or their time is gone. */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import type { AioUrl, PortLink } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import type { Attachment, Backend, Target } from "../../src/backend/backend.ts";
import { richBackend } from "./support/rich-backend.ts";
import { Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let inner: Server;
let port: number;

beforeAll(async () => {
  inner = createServer((request, response) => {
    response.writeHead(200).write("begun");
    if (!(request.url ?? "").includes("endless")) response.end();
  });
  new WebSocketServer({ server: inner }).on("connection", (socket) => socket.send("begun"));
  await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
  port = (inner.address() as AddressInfo).port;
  stage = await openStage({
    enrich: (backend) => toInner(richBackend(backend), port),
    fleet: { blueprints: { default: {}, tools: {} } },
  });
});
afterAll(async () => {
  await stage.done();
  inner.closeAllConnections();
  await new Promise((resolve) => inner.close(resolve));
});

/** A caller whose key can be revoked, with a thread that has a file. */
async function newCaller(thread: string, more: { scope?: "platform"; blueprints?: readonly string[] } = {}) {
  const { scope, blueprints } = more;
  const who = scope === undefined ? { scope: "user" as const, user: "alice" } : { scope };
  const { key, id } = await stage.gateway.keys.create({ ...who, ...(blueprints === undefined ? {} : { blueprints }) });
  const caller = new Caller(stage.gateway.url, key, scope === undefined ? {} : { "x-sandlot-user": "alice" });
  await caller.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command: "echo 1 > kept" } });
  return { caller, id };
}

interface Way {
  /** Requests a path below the link. */
  ask(path: string): Promise<Response>;
  url: string;
  headers: Record<string, string>;
}

const ways: readonly [string, (caller: Caller, thread: string, ttlMs?: number) => Promise<Way>][] = [
  [
    "a preview link",
    async (caller, thread, ttlMs = 60_000) => {
      const path = `/v1/threads/${thread}/ports/${port}/links`;
      const { direct } = await caller.ask<PortLink>(201, "POST", path, { json: { ttlMs } });
      const { url, headers } = direct;
      return { url, headers, ask: (below) => fetch(`${url}${below}`, { headers }) };
    },
  ],
  [
    "an AIO URL",
    async (caller, thread, ttlMs = 60_000) => {
      const { url } = await caller.ask<AioUrl>(201, "POST", `/v1/threads/${thread}/aio`, { json: { ttlMs } });
      return { url, headers: {}, ask: (below) => fetch(`${url}${below}`) };
    },
  ],
];

async function refusal(response: Response): Promise<[number, string]> {
  const { error } = (await response.json()) as { error: { code: string } };
  return [response.status, error.code];
}

/** How long until running requests are cut off. */
async function cutAfterMs(response: Response): Promise<number> {
  const began = performance.now();
  await expect(response.text()).rejects.toThrow();
  return performance.now() - began;
}

describe.each(ways)("%s", (kind, make) => {
  const name = kind.replaceAll(" ", "-").toLowerCase();

  test("ends with the key that made it", async () => {
    const { caller, id } = await newCaller(`${name}-key`);
    const link = await make(caller, `${name}-key`);
    expect((await link.ask("/page")).status).toBe(200);
    await stage.gateway.keys.revoke(id);
    expect(await refusal(await link.ask("/page"))).toEqual([401, "unauthorized"]);
  });

  test("does not bring a purged thread back", async () => {
    const thread = `${name}-purged`;
    const { caller } = await newCaller(thread);
    const link = await make(caller, thread);
    // As the command line does without a gateway: no route sees it.
    await stage.fleet.destroy({ user: "alice", thread }, { purge: true, force: true });
    expect(await refusal(await link.ask("/page"))).toEqual([404, "thread_not_found"]);
    expect(await stage.fleet.findThread({ user: "alice", thread })).toBeNull();
  });

  test("wakes a thread whose sandbox was stopped and whose files are kept", async () => {
    const thread = `${name}-stopped`;
    const { caller } = await newCaller(thread);
    const link = await make(caller, thread);
    await caller.ask(200, "POST", `/v1/threads/${thread}/stop?force=true`);
    expect((await link.ask("/page")).status).toBe(200);
  });

  test("a stream through it ends with its time", async () => {
    const thread = `${name}-time`;
    const { caller } = await newCaller(thread);
    const link = await make(caller, thread, 2_500);
    const response = await link.ask("/endless");
    expect(response.status).toBe(200);
    expect(await cutAfterMs(response)).toBeLessThan(30_000);
    expect((await refusal(await link.ask("/page")))[0]).toBe(401);
  });

  test("a stream through it ends soon after its key", async () => {
    const thread = `${name}-cut`;
    const { caller, id } = await newCaller(thread);
    const response = await (await make(caller, thread)).ask("/endless");
    expect(response.status).toBe(200);
    await stage.gateway.keys.revoke(id);
    expect(await cutAfterMs(response)).toBeLessThan(30_000);
  });

  test("reaches no sandbox of a blueprint that its key may not use", async () => {
    const thread = `${name}-blueprint`;
    const { caller } = await newCaller(thread);
    const link = await make(caller, thread);
    expect((await link.ask("/page")).status).toBe(200);
    await stage.fleet.destroy({ user: "alice", thread }, { force: true });
    const lease = await stage.fleet.acquire({ user: "alice", thread, blueprint: "tools" });
    try {
      expect(await refusal(await link.ask("/page"))).toEqual([403, "forbidden"]);
    } finally {
      await lease.release();
    }
  });
});

test.each([
  ["its time", 2_500],
  ["its key", 60_000],
])("a WebSocket through a preview link ends with %s", async (end, ttlMs) => {
  const thread = `socket-${ttlMs}`;
  const { caller, id } = await newCaller(thread);
  const [, make] = ways[0] ?? [];
  const link = await make?.(caller, thread, ttlMs);
  const socket = new WebSocket(`${link?.url.replace("http", "ws")}/socket`, { headers: link?.headers ?? {} });
  await new Promise((resolve, reject) => socket.once("message", resolve).once("error", reject));
  if (end === "its key") await stage.gateway.keys.revoke(id);
  await new Promise((resolve) => socket.once("close", resolve).on("error", () => undefined));
});

test("a link is made for a thread that exists; an AIO URL makes the thread", async () => {
  const alice = await stage.user("alice");
  const refused = await alice.call("POST", `/v1/threads/never/ports/${port}/links`);
  expect(await refusal(refused)).toEqual([404, "thread_not_found"]);
  await alice.ask(404, "GET", "/v1/threads/never");
  const { url } = await alice.ask<AioUrl>(201, "POST", "/v1/threads/fresh/aio", { json: {} });
  await alice.ask(200, "GET", "/v1/threads/fresh");
  expect((await fetch(`${url}/page`)).status).toBe(200);
});

test("a platform's link acts for the user it was made for, with the platform's grants", async () => {
  const { caller } = await newCaller("platforms", { scope: "platform", blueprints: ["default"] });
  for (const [, make] of ways) expect((await (await make(caller, "platforms")).ask("/page")).status).toBe(200);
});

/** Every port leads to the server of this test. */
function toInner(backend: Backend, to: number): Backend {
  return new Proxy(backend, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (name !== "attach") return value;
      return async (at: Target, signal: AbortSignal): Promise<Attachment> => ({
        ...(await target.attach(at, signal)),
        connect: async () => connect(to, "127.0.0.1"),
      });
    },
  });
}
