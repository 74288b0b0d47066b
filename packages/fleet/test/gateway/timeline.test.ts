/** The timeline of a thread, through the library, the routes and the client. */

import { createConnection } from "node:net";
import { SandlotClient } from "@sandlot/client";
import type { TimelineEntry, TimelinePage } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let client: SandlotClient;

beforeAll(async () => {
  stage = await openStage();
  alice = await stage.user("alice");
  client = new SandlotClient({ url: alice.url, apiKey: alice.key });
});
afterAll(() => stage.done());

const read = (thread: string, query = "") =>
  alice.ask<TimelinePage>(200, "GET", `/v1/threads/${thread}/timeline${query}`);
const exec = (thread: string, command: string, more: object = {}) =>
  alice.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command, ...more } });
const kindsOf = ({ entries }: TimelinePage) => entries.map(({ kind, what }) => `${kind} ${what}`);
const commandsOf = ({ entries }: TimelinePage) => entries.filter(({ kind }) => kind === "command");

describe("commands", () => {
  test("of a gateway have their exit code, duration and output by offset, and no environment", async () => {
    await exec("c1", "printf 12345; printf abc >&2; exit 3", {
      ...{ env: { TOKEN: "environment-value" }, cwd: "/tmp", execId: "chosen" },
    });
    const page = await read("c1");
    const [ended] = commandsOf(page);
    expect(ended).toMatchObject({ what: "ended", instance: stage.fleet.instanceId });
    expect(ended?.facts).toMatchObject({
      way: "exec",
      exitCode: 3,
      status: "completed",
      cwd: "/tmp",
      execId: "chosen",
    });
    expect(ended?.facts).toMatchObject({ stdoutBytes: 5, stderrBytes: 3 });
    expect(ended?.facts.durationMs).toBeGreaterThanOrEqual(0);
    expect(ended?.generation).toBeGreaterThan(0);
    expect(JSON.stringify(page)).not.toContain("environment-value");
    const path = `/v1/threads/c1/execs/chosen?stdoutOffset=2`;
    const output = await alice.ask<{ stdout: { text: string } }>(200, "GET", path);
    expect(output.stdout.text).toBe("345");
    expect(kindsOf(page)).toEqual(
      expect.arrayContaining(["sandbox created", "sandbox attached", "lease acquired", "command ended"]),
    );
  });

  test("of the library are there as well, with the error of a call that failed", async () => {
    const key = { user: "alice", thread: "c2" };
    await using lease = await stage.fleet.acquire(key);
    await lease.sandbox.exec(["echo", "it's", "a b"]);
    const signal = AbortSignal.abort(new Error("no"));
    await expect(lease.sandbox.exec("sleep 5", { signal })).rejects.toThrow();
    const [first, second] = commandsOf(await stage.fleet.timeline.read(key));
    expect(first?.facts.command).toBe(`echo 'it'\\''s' 'a b'`);
    expect(second?.facts).toMatchObject({ status: "failed", exitCode: null });
  });

  test("in the background have a start, and an end that somebody saw", async () => {
    await alice.ask(202, "POST", "/v1/threads/c3/exec", {
      json: { command: "sleep 0.2; exit 4", background: true, execId: "job" },
    });
    const until = async (what: string) =>
      expect
        .poll(async () => commandsOf(await read("c3")).find((entry) => entry.what === what)?.facts, { timeout: 30_000 })
        .toMatchObject({ execId: "job", way: "spawn" });
    await until("started");
    // Nothing follows it: the fleet asks by itself while it holds the sandbox.
    await using _lease = await stage.fleet.acquire({ user: "alice", thread: "c3" });
    await until("ended");
    const [started, ended] = commandsOf(await read("c3"));
    expect(ended?.facts).toMatchObject({ exitCode: 4, id: started?.facts.id });
  });

  test("that are long, hostile or not text are bounded", async () => {
    await exec("c4", `: ${"x".repeat(100_000)}`);
    await exec("c4", "echo '\u001b]0;owned\u0007\u2028</script>'");
    const [long, hostile] = commandsOf(await read("c4"));
    expect(String(long?.facts.command)).toHaveLength(2_000);
    expect(long?.facts.command).toMatch(/x…$/);
    expect(hostile?.facts.command).toContain("owned\u0007");
  });
});

describe("what happens", () => {
  test("a crash is told, with the commands that it took along and the next generation", async () => {
    const key = { user: "alice", thread: "w1" };
    await using lease = await stage.fleet.acquire({ ...key, purpose: "looking" });
    const running = lease.sandbox.exec("sleep 60").catch(() => null);
    await stage.crash("w1");
    await running;
    await lease.sandbox.exec("true");
    const page = await stage.fleet.timeline.read(key);
    const kinds = kindsOf(page);
    expect(kinds).toEqual(expect.arrayContaining(["crash crashed", "lease lost", "command ended", "sandbox stopped"]));
    expect(kinds.filter((kind) => kind === "sandbox created")).toHaveLength(2);
    const generations = new Set(page.entries.flatMap(({ generation }) => generation ?? []));
    expect(generations.size).toBe(2);
  });

  test("checkpoints, changed files, restores and forks", async () => {
    await exec("w2", "echo 1 > one.txt");
    await alice.ask(200, "POST", "/v1/threads/w2/checkpoints", { json: { label: "a" } });
    await exec("w2", "echo 2 > two.txt; rm one.txt");
    await alice.ask(200, "POST", "/v1/threads/w2/checkpoints", { json: { label: "b" } });
    await alice.ask(200, "POST", "/v1/threads/w2/undo", { json: { force: true } });
    await alice.ask(201, "POST", "/v1/threads/w2/branch", { json: { to: "w2-fork" } });
    await expect
      .poll(async () => (await read("w2")).entries.filter(({ kind }) => kind === "files").map(({ facts }) => facts), {
        timeout: 30_000,
      })
      .toEqual(
        expect.arrayContaining([
          expect.objectContaining({ added: 1, removed: 1, names: expect.arrayContaining(["workspace/two.txt"]) }),
        ]),
      );
    expect(kindsOf(await read("w2"))).toEqual(
      expect.arrayContaining(["checkpoint taken", "restore undo", "fork to", "sandbox stopped"]),
    );
    expect(kindsOf(await read("w2-fork"))).toContain("fork from");
  });

  test("uploads and links to ports", async () => {
    await exec("w3", "true");
    await client.uploadFiles("w3", [{ name: "data.csv", content: "a,b" }]);
    await client.linkPort("w3", 8_080);
    const { entries } = await read("w3", "?kind=upload,preview");
    expect(entries.map(({ facts }) => facts)).toEqual([
      { names: ["data.csv"], count: 1, sizeBytes: 3 },
      { port: 8_080 },
    ]);
  });
});

describe("reading", () => {
  test("pages by offset in both directions, and filters by kind and time", async () => {
    for (let n = 0; n < 12; n += 1) await exec("r1", `echo ${n}`);
    const all = commandsOf(await read("r1", "?kind=command"));
    expect(all).toHaveLength(12);
    const forward: TimelineEntry[] = [];
    for (let from: number | null = 0; from !== null; ) {
      const page: TimelinePage = await read("r1", `?kind=command&limit=5&from=${from}`);
      forward.push(...page.entries);
      from = page.next;
    }
    expect(forward).toEqual(all);
    const back: TimelineEntry[] = [];
    for (let before: number | null = Number.MAX_SAFE_INTEGER; before !== null; ) {
      const page: TimelinePage = await read("r1", `?kind=command&limit=5&before=${before}`);
      back.unshift(...page.entries);
      before = page.previous;
    }
    expect(back).toEqual(all);
    const { at = 0 } = all[5] ?? {};
    const late = await read("r1", `?kind=command&since=${at}`);
    expect(late.entries).toEqual(all.filter((entry) => entry.at >= at));
  });

  test("follows with the client, across a page and what comes, and goes on after a broken connection", async () => {
    await exec("r2", "echo first");
    const controller = new AbortController();
    const seen: string[] = [];
    const following = (async () => {
      const options = { from: 0, kinds: ["command"] as const, signal: controller.signal };
      for await (const entry of client.timeline.follow("r2", options)) seen.push(String(entry?.facts.command));
    })().catch(() => undefined);
    await expect.poll(() => seen, { timeout: 30_000 }).toEqual(["echo first"]);
    await exec("r2", "echo second");
    await expect.poll(() => seen, { timeout: 30_000 }).toEqual(["echo first", "echo second"]);
    controller.abort();
    await following;
  });

  test("resumes after the event whose id was seen last", async () => {
    await exec("r3", "echo one");
    await exec("r3", "echo two");
    const [one] = commandsOf(await read("r3"));
    const response = await alice.call("GET", "/v1/threads/r3/timeline/stream?kind=command", {
      headers: { "last-event-id": String(one?.offset) },
      signal: AbortSignal.timeout(30_000),
    });
    const reader = response.body?.getReader();
    const { value } = (await reader?.read()) ?? {};
    const text = Buffer.from(value ?? []).toString("utf8");
    expect(text).toContain("echo two");
    expect(text).not.toContain("echo one");
    await reader?.cancel();
  });

  test("a thread that is not there is told, and looking makes none", async () => {
    const refused = await alice.ask<{ error: { code: string } }>(404, "GET", "/v1/threads/nowhere/timeline");
    expect(refused.error.code).toBe("thread_not_found");
    await alice.ask(404, "GET", "/v1/threads/nowhere/timeline/stream");
    await alice.ask(404, "GET", "/v1/threads/nowhere/usage/stream");
    expect(await stage.fleet.findThread({ user: "alice", thread: "nowhere" })).toBeNull();
  });

  test("reading, following and usage take no lease", async () => {
    await exec("r4", "true");
    await expect
      .poll(async () => (await stage.fleet.find({ user: "alice", thread: "r4" }))?.state, { timeout: 30_000 })
      .toBe("parked");
    const before = kindsOf(await read("r4")).length;
    for await (const sample of client.timeline.usage("r4")) {
      expect(sample).toMatchObject({ state: "parked", usage: null });
      break;
    }
    expect(kindsOf(await read("r4"))).toHaveLength(before);
    expect((await stage.fleet.find({ user: "alice", thread: "r4" }))?.state).toBe("parked");
    await using _lease = await stage.fleet.acquire({ user: "alice", thread: "r4" });
    for await (const sample of client.timeline.usage("r4")) {
      expect(sample.state).toBe("leased");
      expect(sample.usage).not.toBeNull();
      break;
    }
  });
});

describe("an export", () => {
  test("is one page that escapes everything and asks for nothing", async () => {
    const hostile = `echo '<script>alert(1)</script><img src=x onerror=alert(2)>"&\u202e\u001b[31m'`;
    await exec("e1", hostile);
    const response = await alice.call("GET", "/v1/threads/e1/timeline/export");
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(response.headers.get("content-disposition")).toBe('attachment; filename="timeline-e1.html"');
    expect(response.headers.get("content-security-policy")).toContain("sandbox; default-src 'none'");
    const html = await response.text();
    expect(html).toContain(
      "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;&quot;&amp;\\u{202e}\\u{1b}[31m",
    );
    expect(html).not.toMatch(/<(?:script|img|iframe|link|object|embed|base|form|a)\b/i);
    expect(html).toContain("default-src 'none'");
  });

  test("is JSON with the same entries", async () => {
    await exec("e2", "echo json");
    const blob = await client.timeline.export("e2", "json");
    const { entries, thread, user } = JSON.parse(await blob.text());
    expect({ thread, user }).toEqual({ thread: "e2", user: "alice" });
    expect(entries).toEqual((await read("e2", "?limit=1000")).entries);
  });
});

describe("a purge", () => {
  test("removes the timeline before it answers, and nothing comes back", async () => {
    await exec("p1", "echo private");
    await alice.ask(200, "DELETE", "/v1/threads/p1?force=true");
    await alice.ask(404, "GET", "/v1/threads/p1/timeline");
    await new Promise((resolve) => setTimeout(resolve, 500));
    await alice.ask(404, "GET", "/v1/threads/p1/timeline");
    await exec("p1", "echo new");
    const page = await read("p1");
    expect(JSON.stringify(page)).not.toContain("private");
    expect(commandsOf(page).map(({ facts }) => facts.command)).toEqual(["echo new"]);
    expect(page.isWhole).toBe(true);
  });

  test("also removes that of a thread without a sandbox and files", async () => {
    stage.fleet.timeline.note({ user: "alice", thread: "p2" }, { kind: "fork", what: "to", facts: { thread: "x" } });
    expect((await read("p2")).entries).toHaveLength(1);
    await alice.ask(200, "DELETE", "/v1/threads/p2");
    await alice.ask(404, "GET", "/v1/threads/p2/timeline");
  });
});

test("without timelines every route says so, and everything else works", async () => {
  const none = await openStage({ timelines: false });
  try {
    const bob = await none.user("bob");
    await bob.ask(200, "POST", "/v1/threads/n1/exec", { json: { command: "true" } });
    const refused = await bob.ask<{ error: { code: string } }>(501, "GET", "/v1/threads/n1/timeline");
    expect(refused.error.code).toBe("capability_missing");
  } finally {
    await none.done();
  }
});

test("a follower that goes away is let go of", async () => {
  await exec("g1", "true");
  const { hostname, port } = new URL(alice.url);
  const socket = createConnection(Number(port), hostname);
  socket.write(
    `GET /v1/threads/g1/timeline/stream HTTP/1.1\r\nhost: ${hostname}:${port}\r\nauthorization: Bearer ${alice.key}\r\n\r\n`,
  );
  await new Promise((resolve) => socket.once("data", resolve));
  socket.destroy();
  const streams = async () => {
    const text = await (await stage.operator.call("GET", "/metrics")).text();
    return /^\S*open_streams(?:\{.*\})? (\d+)$/m.exec(text)?.[1];
  };
  await expect.poll(streams, { timeout: 30_000 }).toBe("0");
});
