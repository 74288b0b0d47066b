/** The rights of a user's key: it sees and ends the threads and sandboxes of its own user, and nothing else. */

import { SandlotClient } from "@sandlot/client";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let bob: Caller;
const clientOf = ({ url, key }: Caller) => new SandlotClient({ url, apiKey: key });

beforeAll(async () => {
  stage = await openStage({ fleet: { blueprints: { net: {}, tools: {} } } });
  alice = await stage.user("alice");
  bob = await stage.user("bob");
});
afterAll(() => stage.done());

const run = (caller: Caller, thread: string, command = "true") =>
  caller.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });

describe("threads", () => {
  test("are listed for their user, with and without a sandbox", async () => {
    await run(alice, "list-a", "echo kept > note");
    await run(alice, "list-b");
    await run(bob, "list-c");
    expect(await clientOf(alice).stopThread("list-a")).toEqual({ outcome: "stopped" });
    const listed = async () =>
      (await clientOf(alice).listThreads()).map(({ user, thread, sandbox }) => [user, thread, sandbox?.state ?? null]);
    // A moment after its last request, a sandbox is released.
    await expect.poll(listed, { timeout: 5_000 }).toContainEqual(["alice", "list-b", "parked"]);
    const shown = await listed();
    expect(shown).toContainEqual(["alice", "list-a", null]);
    expect(shown.map(([user]) => user)).not.toContain("bob");
    const all = (await clientOf(stage.operator).listThreads()).map(({ user }) => user);
    expect(all).toEqual(expect.arrayContaining(["alice", "bob"]));
    const asAlice = await clientOf(stage.platform).actingFor("alice").listThreads();
    expect(new Set(asAlice.map(({ user }) => user))).toEqual(new Set(["alice"]));
    await stage.platform.ask(422, "GET", "/v1/threads");
  });

  test("are listed page by page, each once", async () => {
    for (const name of ["page-1", "page-2", "page-3"]) await run(alice, name);
    const seen: string[] = [];
    let after = "";
    for (let more: string | null = ""; more !== null; ) {
      const page: { threads: { thread: string }[]; next: string | null } = await alice.ask(
        200,
        "GET",
        `/v1/threads?limit=2${after}`,
      );
      expect(page.threads.length).toBeLessThanOrEqual(2);
      seen.push(...page.threads.map(({ thread }) => thread));
      more = page.next;
      after = `&after=${encodeURIComponent(more ?? "")}`;
    }
    expect(seen).toEqual([...new Set(seen)].sort());
    expect(seen).toEqual(expect.arrayContaining(["page-1", "page-2", "page-3"]));
  });

  test("that do not exist are said not to, and looking makes nothing", async () => {
    expect(await clientOf(alice).findThread("never-existed")).toBeNull();
    const { error } = await alice.ask<{ error: { code: string; remedy: string } }>(
      404,
      "GET",
      "/v1/threads/never-existed",
    );
    expect(error.code).toBe("thread_not_found");
    expect(error.remedy).not.toBe("");
    expect(await stage.fleet.findThread({ user: "alice", thread: "never-existed" })).toBeNull();
    expect(await clientOf(alice).stopThread("never-existed")).toEqual({ outcome: "absent" });
  });

  test("stop keeps the files, and says why the sandbox ended", async () => {
    await run(alice, "stopped", "echo kept > note");
    const before = await clientOf(alice).findThread("stopped");
    expect(await clientOf(alice).stopThread("stopped")).toEqual({ outcome: "stopped" });
    expect(await clientOf(alice).findThread("stopped")).toEqual({ user: "alice", thread: "stopped", sandbox: null });
    const explained = await clientOf(alice).explainThread("stopped");
    expect(explained).toMatchObject({ state: "absent", stopped: { reason: "destroyed" }, thread: "stopped" });
    expect(explained.sandboxId).toBe(before?.sandbox?.sandboxId);
    expect(await run(alice, "stopped", "cat note")).toMatchObject({ stdout: "kept\n" });
  });

  test("resetting the home keeps the workspace, and is refused while another key holds the sandbox", async () => {
    await run(alice, "reset", "echo kept > note; echo planted > ~/.bashrc");
    expect(await clientOf(alice).resetHome("reset")).toEqual({ outcome: "stopped" });
    expect(await run(alice, "reset", "cat ~/.bashrc; cat note")).toMatchObject({ stdout: "kept\n" });
    expect(await clientOf(alice).resetHome("never-existed")).toEqual({ outcome: "absent" });
    await run(alice, "reset", "echo planted > ~/.bashrc");
    expect(await clientOf(bob).resetHome("reset")).toEqual({ outcome: "absent" });
    await using lease = await clientOf(alice).acquire({ thread: "reset" });
    const refusal = await clientOf(alice)
      .resetHome("reset")
      .catch((error: unknown) => error);
    expect(isSandlotError(refusal, "sandbox_in_use")).toBe(true);
    expect((await lease.sandbox.exec("cat ~/.bashrc")).stdout).toBe("planted\n");
    expect(await clientOf(alice).resetHome("reset", { force: true })).toEqual({ outcome: "stopped" });
    expect(await run(alice, "reset", "cat ~/.bashrc; cat note")).toMatchObject({ stdout: "kept\n" });
  });

  test("that are in use are stopped by force only", async () => {
    await using _lease = await clientOf(alice).acquire({ thread: "held" });
    const refusal = await clientOf(alice)
      .stopThread("held")
      .catch((error: unknown) => error);
    expect(isSandlotError(refusal, "sandbox_in_use")).toBe(true);
    expect(await clientOf(alice).stopThread("held", { force: true })).toEqual({ outcome: "stopped" });
  });
});

describe("sandboxes", () => {
  test("of others are not there for a user: not to list, look at, explain or end", async () => {
    await run(alice, "mine");
    await run(bob, "theirs");
    const listed = await clientOf(alice).listSandboxes();
    expect(new Set(listed.map(({ user }) => user))).toEqual(new Set(["alice"]));
    const theirs = (await clientOf(bob).listSandboxes())[0]?.sandboxId ?? "";
    await alice.ask(404, "GET", `/v1/sandboxes/${theirs}`);
    await alice.ask(404, "GET", `/v1/sandboxes/${theirs}/explain`);
    await alice.ask(404, "GET", `/v1/sandboxes/${theirs.slice(0, 12)}/explain`);
    await alice.ask(404, "DELETE", `/v1/sandboxes/${theirs}?force=true`);
    expect((await clientOf(bob).listSandboxes()).map(({ sandboxId }) => sandboxId)).toContain(theirs);
  });

  test("are explained by the beginning of their id, also when they have ended", async () => {
    await run(alice, "short");
    const { sandbox } = (await clientOf(alice).findThread("short")) ?? { sandbox: null };
    const short = sandbox?.sandboxId.slice(0, 12) ?? "";
    expect(["leased", "parked"]).toContain((await clientOf(alice).explain(short)).state);
    await clientOf(alice).destroySandbox(sandbox?.sandboxId ?? "");
    expect(await clientOf(alice).explain(short)).toMatchObject({ state: "absent", stopped: { reason: "destroyed" } });
    await bob.ask(404, "GET", `/v1/sandboxes/${short}/explain`);
  });

  test("a user hears of their own sandboxes only", async () => {
    const stop = new AbortController();
    const heard: { user: unknown; type: string }[] = [];
    const reading = (async () => {
      for await (const event of clientOf(alice).events({ signal: stop.signal })) {
        if (event !== null) heard.push({ type: event.type, user: "user" in event ? event.user : null });
        if (event?.type === "sandbox-stopped" && event.thread === "heard-last") return;
      }
    })();
    await expect.poll(() => stage.gateway.openStreams()).toBeGreaterThan(0);
    await run(bob, "heard-bob");
    await run(alice, "heard-last");
    await clientOf(bob).stopThread("heard-bob");
    await clientOf(alice).stopThread("heard-last");
    await reading;
    stop.abort();
    expect(heard.map(({ type }) => type)).toContain("sandbox-created");
    expect(new Set(heard.map(({ user }) => user))).toEqual(new Set(["alice"]));
  });
});

describe("blueprints are granted to keys", () => {
  const lease = async (caller: Caller, thread: string, blueprint: string) => {
    const response = await caller.call("POST", `/v1/threads/${thread}/leases`, { json: { blueprint } });
    const text = await response.text();
    if (response.ok) await caller.ask(204, "DELETE", `/v1/leases/${(JSON.parse(text) as { leaseId: string }).leaseId}`);
    return { status: response.status, text };
  };

  test("a user's key may name `default` and nothing else, existing or not", async () => {
    expect((await lease(alice, "bp-1", "default")).status).toBe(201);
    for (const name of ["net", "no-such"]) {
      const refused = await lease(alice, "bp-2", name);
      expect(refused.status).toBe(403);
      expect(refused.text).toContain("only: default");
    }
    expect(await stage.fleet.find({ user: "alice", thread: "bp-2" })).toBeNull();
  });

  test("a key that lists blueprints may name those; other scopes every one", async () => {
    const granted = await clientOf(stage.operator).createKey({ scope: "user", user: "dora", blueprints: ["net"] });
    const dora = stage.operator.as(granted.key);
    expect((await lease(dora, "bp-3", "net")).status).toBe(201);
    expect((await lease(dora, "bp-4", "tools")).status).toBe(403);
    expect((await lease(dora, "bp-5", "default")).status).toBe(403);
    const all = await clientOf(stage.operator).createKey({ scope: "user", user: "dora", blueprints: ["*"] });
    expect((await lease(stage.operator.as(all.key), "bp-6", "tools")).status).toBe(201);
    expect((await lease(stage.platform.with({ "x-sandlot-user": "eve" }), "bp-7", "tools")).status).toBe(201);
  });

  /** Every way to a sandbox that names no blueprint. */
  const ways = (caller: Caller, thread: string) => [
    () => caller.call("POST", `/v1/threads/${thread}/exec`, { json: { command: "true" } }),
    () => caller.call("GET", `/v1/threads/${thread}/files/list?path=/mnt/user-data/workspace`),
    () => caller.call("POST", `/v1/threads/${thread}/leases`, { json: {} }),
    () =>
      caller.call("POST", `/mcp/threads/${thread}`, {
        json: { jsonrpc: "2.0", id: 1, method: "tools/list" },
        headers: { accept: "application/json, text/event-stream" },
      }),
  ];

  test("a key without `default` in its list never gets it, and uses a thread of a granted one", async () => {
    const granted = await clientOf(stage.operator).createKey({ scope: "user", user: "gina", blueprints: ["net"] });
    const gina = stage.operator.as(granted.key);
    for (const way of ways(gina, "bp-8")) {
      const response = await way();
      expect([response.status, await response.text()]).toEqual([403, expect.stringContaining("only: net")]);
    }
    expect(await stage.fleet.find({ user: "gina", thread: "bp-8" })).toBeNull();
    expect((await lease(gina, "bp-9", "net")).status).toBe(201);
    for (const way of ways(gina, "bp-9").slice(0, 2)) {
      const response = await way();
      expect([response.status, await response.text()]).toEqual([200, expect.any(String)]);
    }
  });

  test("a key does not use a thread's sandbox of a blueprint that it was not granted", async () => {
    const held = await stage.fleet.acquire({ user: "alice", thread: "bp-10", blueprint: "net" });
    for (const isHeld of [true, false]) {
      if (!isHeld) await held.release();
      for (const way of ways(alice, "bp-10")) {
        const response = await way();
        expect([response.status, await response.text()]).toEqual([403, expect.stringContaining("only: default")]);
      }
    }
    expect(await stage.fleet.find({ user: "alice", thread: "bp-10" })).toMatchObject({ blueprint: "net", holders: [] });
  });
});

describe("keys", () => {
  test("are made, listed and ended by operators over the gateway", async () => {
    const operator = clientOf(stage.operator);
    const made = await operator.createKey({ scope: "user", user: "frank", label: "laptop" });
    const frank = new SandlotClient({ url: stage.gateway.url, apiKey: made.key });
    expect(await frank.key()).toMatchObject({ id: made.id, scope: "user", user: "frank", label: "laptop" });
    expect(JSON.stringify(await operator.listKeys())).not.toContain(made.key.slice(-20));
    expect((await operator.listKeys()).map(({ id }) => id)).toContain(made.id);
    expect(await operator.revokeKey(made.id)).toBe(true);
    expect(await operator.revokeKey(made.id)).toBe(false);
    await expect
      .poll(() => frank.key().catch((error: unknown) => (error as { code: string }).code))
      .toBe("unauthorized");
  });
});
