/** DeerFlow's provisioner contract, on a fleet in memory: statuses, bodies, owners, and the end of a URL. */

import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type InnerAio, openInnerAio } from "./support/aio-backend.ts";
import { DeerFlowClient } from "./support/deerflow-client.ts";
import { type Caller, openStage, type Stage, type StageOptions } from "./support/stage.ts";
import { openTwoGateways } from "./support/two-gateways.ts";

interface Shown {
  readonly sandbox_id: string;
  readonly sandbox_url: string;
  readonly status: string;
}

let inner: InnerAio;
let stage: Stage | null = null;

beforeEach(async () => {
  inner = await openInnerAio();
});
afterEach(async () => {
  for (const { user, thread } of (await stage?.fleet.list()) ?? [])
    if (user !== null && thread !== null) await stage?.fleet.destroy({ user, thread }, { force: true });
  await stage?.done();
  stage = null;
  await inner.close();
});

async function open(options: StageOptions = {}): Promise<Stage> {
  stage = await openStage({ enrich: inner.enrich, ...options });
  return stage;
}

const create = (caller: Caller, body: object, status = 200) =>
  caller.ask<Shown & { detail: unknown }>(status, "POST", "/api/sandboxes", { json: body });
const look = async (url: string) => (await fetch(`${url}/v1/sandbox`)).status;

describe("the contract", () => {
  it("creates, shows, lists and ends a sandbox, with DeerFlow's bodies", async () => {
    const { platform, gateway, fleet } = await open();
    const made = await create(platform, { sandbox_id: "abc", thread_id: "t1", user_id: "ann" });
    expect(made).toEqual({ sandbox_id: "abc", sandbox_url: expect.any(String), status: "Running" });
    expect(made.sandbox_url).toMatch(new RegExp(`^${gateway.previewUrl}/aio/p[0-9a-f]{96}$`));
    expect(await look(made.sandbox_url)).toBe(200);
    // One more slash, as its client sends it where a base URL ends in one.
    expect(await look(`${made.sandbox_url}/`)).toBe(200);
    expect(await fleet.find({ user: "ann", thread: "t1" })).toMatchObject({ state: "leased", blueprint: "default" });

    expect(await platform.ask(200, "GET", "/api/sandboxes/abc")).toEqual(made);
    expect(await platform.ask(200, "GET", "/api/sandboxes")).toEqual({ sandboxes: [made], count: 1 });
    expect(await create(platform, { sandbox_id: "abc", thread_id: "t1", user_id: "ann" })).toEqual(made);
    expect((await fleet.list()).length).toBe(1);

    const ended = { ok: true, sandbox_id: "abc", stopped: true };
    expect(await platform.ask(200, "DELETE", "/api/sandboxes/abc")).toEqual(ended);
    expect(await fleet.list()).toEqual([]);
    expect(await look(made.sandbox_url)).toBe(401);
    expect(await platform.ask(404, "GET", "/api/sandboxes/abc")).toMatchObject({ detail: "Sandbox 'abc' not found" });
    expect(await platform.ask(200, "GET", "/api/sandboxes")).toEqual({ sandboxes: [], count: 0 });
    expect(await platform.ask(200, "DELETE", "/api/sandboxes/abc")).toEqual(ended);
    expect(await platform.ask(200, "DELETE", "/api/sandboxes/no%20such%20id")).toMatchObject({ ok: true });

    // The URL of a sandbox that has ended stays dead when its id comes again.
    const again = await create(platform, { sandbox_id: "abc", thread_id: "t1", user_id: "ann" });
    expect(again.sandbox_url).not.toBe(made.sandbox_url);
    expect([await look(again.sandbox_url), await look(made.sandbox_url)]).toEqual([200, 401]);
  });

  it("answers health without a key, and everything else with 401 and a plain text", async () => {
    const { platform, gateway } = await open();
    const bare = platform.as("");
    expect(await bare.ask(200, "GET", "/health")).toEqual({ status: "ok" });
    expect(await platform.ask(200, "GET", "/api/capabilities")).toEqual({
      ...{ lark_cli_init_image: false, lark_cli_broker_image: false },
    });
    const wrong = [{}, { "x-api-key": "slk_000000000000_x" }, { "x-api-key": "ké" }, { "x-api-key": "" }];
    for (const headers of wrong as Record<string, string>[])
      for (const [method, path] of [
        ["GET", "/api/capabilities"],
        ["GET", "/api/sandboxes"],
        ["GET", "/api/sandboxes/x"],
        ["DELETE", "/api/sandboxes/x"],
        ["POST", "/api/sandboxes"],
      ] as const) {
        const response = await fetch(`${gateway.url}${path}`, { method, headers });
        expect([method, path, response.status, await response.text()]).toEqual([method, path, 401, "Unauthorized"]);
      }
  });

  it("refuses a body that does not fit with 422, and takes fields that it does not know", async () => {
    const { platform } = await open();
    for (const body of [
      {},
      { sandbox_id: 1 },
      { sandbox_id: "" },
      { sandbox_id: "a/b" },
      { sandbox_id: "../x" },
      { sandbox_id: "a", thread_id: "a b" },
      { sandbox_id: "a", thread_id: "x".repeat(65) },
      { sandbox_id: "a", user_id: "" },
      { sandbox_id: "a", user_id: "a/b" },
      { sandbox_id: "a", extra_mounts: [{ host_path: "/x" }] },
      { sandbox_id: "a", include_legacy_skills: "maybe" },
    ]) {
      const { detail } = await create(platform, body, 422);
      expect(detail).toEqual([{ type: "value_error", loc: expect.arrayContaining(["body"]), msg: expect.any(String) }]);
    }
    await create(platform, { sandbox_id: "a", some_later_field: { x: 1 }, provision_lark_cli_broker: true });
  });

  it("judges a long list of mounts as one mistake, and names few of many mistakes", async () => {
    const { platform } = await open();
    const listed = (count: number) => ({ sandbox_id: "a", extra_mounts: Array.from({ length: count }, () => ({})) });
    expect((await create(platform, listed(200_000), 422)).detail).toHaveLength(1);
    expect((await create(platform, listed(60), 422)).detail).toHaveLength(20);
  });

  it("refuses every extra mount where none is configured", async () => {
    const { platform, fleet } = await open();
    const extra_mounts = [{ host_path: "/tmp", container_path: "/mnt/acp-workspace", read_only: true }];
    const { detail } = await create(platform, { sandbox_id: "a", thread_id: "t", extra_mounts }, 400);
    expect(detail).toContain("provisioner.hostBasePath");
    expect(await fleet.list()).toEqual([]);
  });

  it("names a thread by the id where the request names none, and its files go with it", async () => {
    const { platform, fleet } = await open();
    await create(platform, { sandbox_id: "anon-1", thread_id: null });
    expect(await fleet.find({ thread: "anon-1" })).toMatchObject({ user: "default", thread: "anon-1" });
    await platform.ask(200, "DELETE", "/api/sandboxes/anon-1");
    expect(await fleet.findThread({ thread: "anon-1" })).toBeNull();
    await create(platform, { sandbox_id: "named", thread_id: "t9" });
    await platform.ask(200, "DELETE", "/api/sandboxes/named");
    expect(await fleet.findThread({ thread: "t9" })).toMatchObject({ thread: "t9", sandbox: null });
  });

  it("is not there when it is switched off", async () => {
    const { platform } = await open({ settings: { provisioner: { enabled: false } } });
    for (const path of ["/health", "/api/capabilities", "/api/sandboxes"]) await platform.ask(404, "GET", path);
  });

  it("says at once that a backend has no AIO API", async () => {
    const { platform } = await open({ enrich: (backend) => backend });
    const { detail } = await create(platform, { sandbox_id: "a" }, 501);
    expect(detail).toContain("preview");
    await platform.ask(404, "GET", "/api/sandboxes/a");
  });
});

describe("ids, threads and owners", () => {
  it("an id belongs to one thread, and a thread to one id, while the sandbox lives", async () => {
    const { platform } = await open();
    await create(platform, { sandbox_id: "one", thread_id: "t1", user_id: "ann" });
    expect((await create(platform, { sandbox_id: "one", thread_id: "t2", user_id: "ann" }, 400)).detail).toContain(
      "another thread",
    );
    await create(platform, { sandbox_id: "one", thread_id: "t1", user_id: "bob" }, 400);
    expect((await create(platform, { sandbox_id: "two", thread_id: "t1", user_id: "ann" }, 409)).detail).toContain(
      "the id one",
    );
    await platform.ask(200, "DELETE", "/api/sandboxes/one");
    await create(platform, { sandbox_id: "two", thread_id: "t1", user_id: "ann" });
    await create(platform, { sandbox_id: "one", thread_id: "t2", user_id: "ann" });
  });

  it("a key sees its own; a user's key acts for its own user, and shares ids with the user's other keys", async () => {
    const opened = await open();
    const { platform, operator } = opened;
    const ann = await opened.user("ann");
    const bob = await opened.user("bob");
    await create(ann, { sandbox_id: "s", thread_id: "t1", user_id: "bob" }, 403);
    await create(ann, { sandbox_id: "s", thread_id: "t1" }, 403);
    const made = await create(ann, { sandbox_id: "s", thread_id: "t1", user_id: "ann" });
    for (const other of [bob, platform, operator]) {
      await other.ask(404, "GET", "/api/sandboxes/s");
      expect(await other.ask(200, "GET", "/api/sandboxes")).toMatchObject({ count: 0 });
      await other.ask(200, "DELETE", "/api/sandboxes/s");
    }
    expect(await (await opened.user("ann")).ask(200, "GET", "/api/sandboxes/s")).toMatchObject({ sandbox_id: "s" });
    // The same id of another owner is another sandbox.
    const bobs = await create(bob, { sandbox_id: "s", thread_id: "t1", user_id: "bob" });
    expect(bobs.sandbox_url).not.toBe(made.sandbox_url);
    expect(await look(made.sandbox_url)).toBe(200);
  });

  it("requests of one id at the same time get one sandbox and one URL", async () => {
    const { platform, fleet } = await open();
    const ask = () => create(platform, { sandbox_id: "same", thread_id: "t1" });
    const made = await Promise.all(Array.from({ length: 8 }, ask));
    expect(new Set(made.map(({ sandbox_url }) => sandbox_url)).size).toBe(1);
    expect((await fleet.list()).length).toBe(1);
  });

  it("a revoked key takes its sandboxes' URLs along; another key starts over with the same thread", async () => {
    const { platform, operator, gateway } = await open();
    const made = await create(platform, { sandbox_id: "s", thread_id: "t1" });
    const next = platform.as((await gateway.keys.create({ scope: "platform" })).key);
    await create(next, { sandbox_id: "s", thread_id: "t1" }, 409);
    await operator.call("DELETE", `/v1/keys/${platform.key.slice(4, 16)}`);
    await expect.poll(() => look(made.sandbox_url)).toBe(401);
    const again = await create(next, { sandbox_id: "s", thread_id: "t1" });
    expect(again.sandbox_url).not.toBe(made.sandbox_url);
    expect(await look(again.sandbox_url)).toBe(200);
  });
});

describe("the life of a provisioned sandbox", () => {
  it("a crash ends it and its URL, for good: the thread's next sandbox is not the client's", async () => {
    const opened = await open();
    const { platform, fleet } = opened;
    const client = new DeerFlowClient(platform.url, platform.key);
    const made = await client.create("t1", "s");
    expect(await client.isAlive("s")).toBe(true);
    await opened.crash("t1");
    await expect.poll(() => client.isAlive("s"), { timeout: 10_000 }).toBe(false);
    expect(await look(made.sandbox_url)).toBe(410);
    expect(await fleet.list()).toEqual([]);
    await using _lease = await fleet.acquire({ thread: "t1" });
    expect([await client.isAlive("s"), await look(made.sandbox_url)]).toEqual([false, 410]);
    const again = await client.create("t1", "s");
    expect(await look(again.sandbox_url)).toBe(200);
    expect(await look(made.sandbox_url)).toBe(401);
  });

  it("its lease keeps it past the idle timeout, and use of the URL renews the lease; without use it ends", async () => {
    const { platform, fleet } = await open({
      settings: { provisioner: { leaseMs: 2_500 }, keepLeasesMs: 0 },
      fleet: { idleTimeoutMs: 300, housekeepingIntervalMs: 100 },
    });
    const used = await create(platform, { sandbox_id: "used", thread_id: "t1" });
    await create(platform, { sandbox_id: "unused", thread_id: "t2" });
    const end = Date.now() + 6_000;
    while (Date.now() < end) {
      expect(await look(used.sandbox_url)).toBe(200);
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    expect((await fleet.list()).map(({ thread }) => thread)).toEqual(["t1"]);
    await platform.ask(404, "GET", "/api/sandboxes/unused");
    expect(await look(used.sandbox_url)).toBe(200);
    await expect.poll(async () => (await fleet.list()).length, { timeout: 10_000 }).toBe(0);
    expect(await look(used.sandbox_url)).toBe(410);
  }, 60_000);

  it("looking at it renews the lease, too", async () => {
    const { platform, fleet } = await open({
      settings: { provisioner: { leaseMs: 2_000 } },
      fleet: { idleTimeoutMs: 300, housekeepingIntervalMs: 100 },
    });
    await create(platform, { sandbox_id: "s", thread_id: "t1" });
    const { sandboxId } = (await fleet.find({ thread: "t1" })) ?? {};
    const end = Date.now() + 5_000;
    while (Date.now() < end) {
      await platform.ask(200, "GET", "/api/sandboxes");
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    expect(await fleet.find({ thread: "t1" })).toMatchObject({ sandboxId });
  }, 30_000);

  it("DELETE cuts requests under way through the URL", async () => {
    const { platform } = await open();
    const made = await create(platform, { sandbox_id: "s", thread_id: "t1" });
    const response = await fetch(`${made.sandbox_url}/slow`);
    const rest = response.text().then(
      () => "ended",
      () => "cut off",
    );
    await platform.ask(200, "DELETE", "/api/sandboxes/s");
    expect(await rest).toBe("cut off");
  });

  it("a URL has no secret of another, and a wrong one is refused", async () => {
    const { platform } = await open();
    const { sandbox_url: url } = await create(platform, { sandbox_id: "s", thread_id: "t1" });
    const other = await create(platform, { sandbox_id: "r", thread_id: "t2" });
    const [name, secret] = [url.slice(-96, -48), url.slice(-48)];
    expect(other.sandbox_url).not.toContain(secret);
    for (const wrong of [
      `${url.slice(0, -1)}${url.endsWith("0") ? "1" : "0"}`,
      `${url.slice(0, -96)}${other.sandbox_url.slice(-96, -48)}${secret}`,
      // The two forms of AIO URLs cannot be taken for each other.
      url.replace("/aio/p", "/aio/"),
    ])
      expect(await look(wrong)).toBe(401);
    expect(await look(url.replace(name, name.toUpperCase()))).toBe(401);
    expect(await look(url)).toBe(200);
  });
});

describe("several gateways", () => {
  it("a sandbox made at one is found, used and ended at the other", async () => {
    const two = await openTwoGateways({ enrich: inner.enrich });
    try {
      const { key } = await two.a.gateway.keys.create({ scope: "platform" });
      const at = (host: typeof two.a) => new DeerFlowClient(host.gateway.url, key);
      const made = await at(two.a).create("t1", "s", { user: "ann" });
      const found = await at(two.b).discover("s");
      const path = (url = "") => new URL(url).pathname;
      expect(path(found?.sandbox_url)).toBe(path(made.sandbox_url));
      expect(new URL(found?.sandbox_url ?? "").port).not.toBe(new URL(made.sandbox_url).port);
      expect([await look(found?.sandbox_url ?? ""), await look(made.sandbox_url)]).toEqual([200, 200]);
      expect(path((await at(two.b).create("t1", "s", { user: "ann" })).sandbox_url)).toBe(path(made.sandbox_url));
      expect((await at(two.b).listRunning()).length).toBe(1);

      await two.a.kill();
      expect(await at(two.b).isAlive("s")).toBe(true);
      expect(await look(found?.sandbox_url ?? "")).toBe(200);
      await at(two.b).destroy("s");
      expect(await at(two.b).isAlive("s")).toBe(false);
      expect(await look(found?.sandbox_url ?? "")).toBe(401);
    } finally {
      await two.done();
    }
  }, 60_000);
});
