/**
 * DeerFlow's provisioner contract, line by line: each route, each field, each status and each word that its client reads,
 * and what that client makes of them. Mounts that are accepted are in `provisioner-local.test.ts`, time limits in
 * `provisioner-sweep.test.ts`.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Backend } from "../../src/backend/backend.ts";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { type InnerAio, openInnerAio } from "./support/aio-backend.ts";
import { DeerFlowClient } from "./support/deerflow-client.ts";
import { openStage, type Stage } from "./support/stage.ts";

/** An engine that refuses what it is told to refuse. */
class Refusing {
  create = false;
  destroy = false;

  on(backend: Backend): Backend {
    return new Proxy(backend, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        return (...given: unknown[]) => {
          if ((name === "create" && this.create) || (name === "destroy" && this.destroy))
            return Promise.reject(new SandlotError("create_failed", { backend: "memory", problem: "no room here" }));
          return (value as (...all: unknown[]) => unknown).apply(target, given);
        };
      },
    });
  }
}

class BrokenStore extends MemoryStore {
  isBroken = false;

  override list(...asked: Parameters<MemoryStore["list"]>) {
    return this.isBroken ? Promise.reject(away()) : super.list(...asked);
  }
  override find(...asked: Parameters<MemoryStore["find"]>) {
    return this.isBroken ? Promise.reject(away()) : super.find(...asked);
  }
}

function away(): SandlotError {
  return new SandlotError("store_unavailable", { operation: "read", problem: "it is away", retryAfterMs: 1_000 });
}

const base = mkdtempSync(join(tmpdir(), "slc-"));
let inner: InnerAio;
let engine: Refusing;
let store: BrokenStore;
let stage: Stage;
let client: DeerFlowClient;

beforeAll(async () => {
  inner = await openInnerAio();
});
afterAll(async () => {
  await inner.close();
  rmSync(base, { recursive: true });
});
beforeEach(async () => {
  engine = new Refusing();
  store = new BrokenStore(newMemoryTables(systemWorld()));
  const settings = { provisioner: { hostBasePath: base } };
  stage = await openStage({ store, settings, enrich: (backend) => inner.enrich(engine.on(backend)) });
  client = new DeerFlowClient(stage.gateway.url, stage.platform.key);
});
afterEach(async () => {
  engine.create = false;
  engine.destroy = false;
  store.isBroken = false;
  for (const { user, thread } of await stage.fleet.list())
    if (user !== null && thread !== null) await stage.fleet.destroy({ user, thread }, { force: true });
  await stage.done();
});

/** Status and body of a request with the platform's key in the contract's header, and with nothing else of ours. */
async function ask(method: string, path: string, json?: unknown, headers?: Record<string, string>) {
  const response = await fetch(`${stage.gateway.url}${path}`, {
    method,
    headers: {
      "x-api-key": stage.platform.key,
      ...(json !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    ...(json !== undefined && { body: JSON.stringify(json) }),
  });
  const text = await response.text();
  const body: unknown = text.startsWith("{") ? JSON.parse(text) : text;
  return { status: response.status, body: body as Record<string, unknown> };
}

const URL_PATTERN = /^http:\/\/127\.0\.0\.1:\d+\/aio\/p[0-9a-f]{96}$/;

describe("GET /health", () => {
  it("200 {status: ok}, without a key", async () => {
    const response = await fetch(`${stage.gateway.url}/health`);
    expect([response.status, await response.json()]).toEqual([200, { status: "ok" }]);
  });
});

describe("GET /api/capabilities", () => {
  it("200 with both Lark images false", async () => {
    expect(await ask("GET", "/api/capabilities")).toEqual({
      status: 200,
      body: { lark_cli_init_image: false, lark_cli_broker_image: false },
    });
  });
});

describe("POST /api/sandboxes", () => {
  it("200 {sandbox_id, sandbox_url, status: Running}, and the same again for the same id", async () => {
    const order = { sandbox_id: "abc", thread_id: "t1", user_id: "ann" };
    const made = await ask("POST", "/api/sandboxes", order);
    const body = { sandbox_id: "abc", sandbox_url: expect.stringMatching(URL_PATTERN), status: "Running" };
    expect(made).toEqual({ status: 200, body });
    expect(await ask("POST", "/api/sandboxes", order)).toEqual(made);
  });

  it("thread_id may be null, user_id is `default`, and flags and unknown fields are taken", async () => {
    const order = {
      ...{ sandbox_id: "abc", thread_id: null, include_legacy_skills: true, extra_mounts: null },
      ...{ provision_lark_cli_runtime: true, provision_lark_cli_broker: true, of_a_later_version: [1] },
    };
    expect((await ask("POST", "/api/sandboxes", order)).status).toBe(200);
    expect(await stage.fleet.find({ user: "default", thread: "abc" })).toMatchObject({ state: "leased" });
  });

  it.each<[string, object]>([
    ["no sandbox_id", { thread_id: "t" }],
    ["a thread_id of 65 characters", { sandbox_id: "a", thread_id: "x".repeat(65) }],
    ["a thread_id with a dot", { sandbox_id: "a", thread_id: "a.b" }],
    ["an empty thread_id", { sandbox_id: "a", thread_id: "" }],
    ["a user_id with a slash", { sandbox_id: "a", user_id: "a/b" }],
    ["a mount without its place", { sandbox_id: "a", extra_mounts: [{ host_path: "/x" }] }],
    ["a flag that is no boolean", { sandbox_id: "a", provision_lark_cli_broker: "x" }],
  ])("422 with a list in `detail`: %s", async (_name, order) => {
    const { status, body } = await ask("POST", "/api/sandboxes", order);
    expect([status, body.detail]).toEqual([422, [expect.objectContaining({ loc: expect.arrayContaining(["body"]) })]]);
    expect(await stage.fleet.list()).toEqual([]);
  });

  it.each<[string, (mine: string) => { host_path: string; container_path: string }[]]>([
    [
      "11 of them",
      (mine) => Array.from({ length: 11 }, () => ({ host_path: mine, container_path: "/mnt/skills/custom" })),
    ],
    ["a relative host path", () => [{ host_path: "mine", container_path: "/mnt/skills/custom" }]],
    ["a host path outside", () => [{ host_path: "/etc", container_path: "/mnt/skills/custom" }]],
    [
      "a host path outside after normalisation",
      (mine) => [{ host_path: `${mine}/../../x`, container_path: "/mnt/skills/custom" }],
    ],
    ["a relative place", (mine) => [{ host_path: mine, container_path: "mnt/skills/custom" }]],
    ["a place that is none of the seven", (mine) => [{ host_path: mine, container_path: "/mnt/user-data" }]],
    [
      "a place twice after normalisation",
      (mine) =>
        ["/mnt/skills/custom", "/mnt/skills/./custom/"].map((container_path) => ({ host_path: mine, container_path })),
    ],
  ])("400 with a text in `detail`, for mounts: %s", async (_name, mounts) => {
    const mine = join(base, "mine");
    mkdirSync(mine, { recursive: true });
    const order = { sandbox_id: "a", thread_id: "t", extra_mounts: mounts(mine) };
    const { status, body } = await ask("POST", "/api/sandboxes", order);
    expect([status, body.detail]).toEqual([400, expect.stringContaining("extra_mounts")]);
    expect(await stage.fleet.list()).toEqual([]);
  });

  it("5xx with a text in `detail` when the engine fails; nothing is left, and asking again is fine", async () => {
    engine.create = true;
    const { status, body } = await ask("POST", "/api/sandboxes", { sandbox_id: "a", thread_id: "t" });
    expect([status, body.detail]).toEqual([503, expect.stringContaining("no room here")]);
    await expect(client.create("t", "a")).rejects.toThrow(/^Provisioner create failed: 503 /);
    expect([await stage.fleet.list(), await client.listRunning(), await client.isAlive("a")]).toEqual([[], [], false]);
    engine.create = false;
    expect((await client.create("t", "a")).sandbox_url).toMatch(URL_PATTERN);
  });
});

describe("GET /api/sandboxes/{id}", () => {
  it("200 with the object that POST answered; the client takes `Running` for alive", async () => {
    const made = await ask("POST", "/api/sandboxes", { sandbox_id: "a" });
    expect(await ask("GET", "/api/sandboxes/a")).toEqual(made);
    expect(await client.isAlive("a")).toBe(true);
  });

  it("404 with DeerFlow's text for an unknown id and for an ended sandbox; the client takes it for dead", async () => {
    for (const id of ["unknown", "a%2Fb", "..%2Fx", "x".repeat(300)]) {
      const { status, body } = await ask("GET", `/api/sandboxes/${id}`);
      expect([status, body.detail]).toEqual([404, `Sandbox '${decodeURIComponent(id)}' not found`]);
    }
    await client.create("t1", "a");
    await stage.crash("t1");
    await expect.poll(() => client.isAlive("a"), { timeout: 30_000 }).toBe(false);
    expect(await client.discover("a")).toBeNull();
    expect((await ask("GET", "/api/sandboxes/a")).body.detail).toBe("Sandbox 'a' not found");
  });

  it("5xx when it cannot tell: the client does not take that for dead, and discovers nothing", async () => {
    await client.create("t1", "a");
    store.isBroken = true;
    await expect(client.isAlive("a")).rejects.toThrow("HTTP 503");
    expect(await client.discover("a")).toBeNull();
    store.isBroken = false;
    expect(await client.isAlive("a")).toBe(true);
  });
});

describe("DELETE /api/sandboxes/{id}", () => {
  it("200 {ok, sandbox_id}, also for an unknown id, one that no sandbox can have, and again", async () => {
    await client.create("t1", "a");
    for (const id of ["a", "a", "unknown", "a%2Fb"])
      expect(await ask("DELETE", `/api/sandboxes/${id}`)).toEqual({
        status: 200,
        body: { ok: true, sandbox_id: decodeURIComponent(id), stopped: true },
      });
    expect([await client.isAlive("a"), await stage.fleet.list()]).toEqual([false, []]);
  });

  it("an end that the engine does not confirm is said, the sandbox counts as ended, and the client asks no more", async () => {
    await client.create("t1", "a");
    engine.destroy = true;
    expect(await ask("DELETE", "/api/sandboxes/a")).toEqual({
      status: 200,
      body: { ok: true, sandbox_id: "a", stopped: false },
    });
    expect([await client.isAlive("a"), await client.listRunning()]).toEqual([false, []]);
    engine.destroy = false;
    const stopped = async () => (await ask("DELETE", "/api/sandboxes/a")).body.stopped;
    await expect.poll(stopped, { timeout: 60_000 }).toBe(true);
    expect(await stage.fleet.list()).toEqual([]);
  }, 120_000);

  it("5xx `Partial cleanup: …` when it fails; the client ignores it", async () => {
    await client.create("t1", "a");
    store.isBroken = true;
    const { status, body } = await ask("DELETE", "/api/sandboxes/a");
    expect([status, body.detail]).toEqual([503, expect.stringMatching(/^Partial cleanup: .*it is away/)]);
    await client.destroy("a");
    store.isBroken = false;
    expect(await client.isAlive("a")).toBe(true);
  });
});

describe("GET /api/sandboxes", () => {
  it("200 {sandboxes, count}, each as it was made", async () => {
    expect(await ask("GET", "/api/sandboxes")).toEqual({ status: 200, body: { sandboxes: [], count: 0 } });
    const made = [
      await ask("POST", "/api/sandboxes", { sandbox_id: "a" }),
      await ask("POST", "/api/sandboxes", { sandbox_id: "b" }),
    ];
    const { status, body } = await ask("GET", "/api/sandboxes");
    expect([status, body.count]).toEqual([200, 2]);
    expect(body.sandboxes).toEqual(expect.arrayContaining(made.map(({ body: one }) => one)));
    expect((await client.listRunning()).map(({ sandbox_id }) => sandbox_id).toSorted()).toEqual(["a", "b"]);
  });

  it("5xx when it fails; the client takes it for none", async () => {
    await client.create("t1", "a");
    store.isBroken = true;
    const { status, body } = await ask("GET", "/api/sandboxes");
    expect([status, body.detail]).toEqual([503, expect.stringContaining("it is away")]);
    expect(await client.listRunning()).toEqual([]);
  });
});

describe("X-API-Key", () => {
  it.each<[string, Record<string, string>]>([
    ["a wrong one", { "x-api-key": "slk_000000000000_x" }],
    ["none", { "x-api-key": "" }],
    ["one that is not ASCII", { "x-api-key": "k\u00e9" }],
  ])("401 with the text `Unauthorized` on every route below /api: %s", async (_name, headers) => {
    for (const [method, path] of [
      ["GET", "/api/capabilities"],
      ["POST", "/api/sandboxes"],
      ["GET", "/api/sandboxes"],
      ["GET", "/api/sandboxes/a"],
      ["DELETE", "/api/sandboxes/a"],
    ] as const)
      expect([path, await ask(method, path, undefined, headers)]).toEqual([
        path,
        { status: 401, body: "Unauthorized" },
      ]);
  });
});

describe("sandbox_url", () => {
  it("answers GET /v1/sandbox with 200 without any header, which is all that the client waits for", async () => {
    const made = await client.create("t1", "a");
    expect(await client.isReady(made)).toBe(true);
  });

  it("ends with the sandbox, and with the key", async () => {
    const look = async (url: string) => (await fetch(`${url}/v1/sandbox`)).status;
    const [first, second] = [await client.create("t1", "a"), await client.create("t2", "b")];
    await client.destroy("a");
    expect(await look(first.sandbox_url)).toBe(401);
    await stage.gateway.keys.revoke(stage.platform.key.slice(4, 16));
    await expect.poll(() => look(second.sandbox_url), { timeout: 30_000 }).toBe(401);
  });
});
