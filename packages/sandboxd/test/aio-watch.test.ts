/** Watches of the AIO API: created, polled, followed and ended, with their own statuses. */

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { join } from "node:path";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { AioClient, SCHEMAS } from "./aio-client.ts";
import { daemonFile, startDaemon } from "./start-daemon.ts";

beforeAll(daemonFile, 60_000);

const event = z.object({
  seq: z.int(),
  type: z.enum(["create", "write", "remove", "rename", "chmod"]),
  path: z.string(),
  relative_path: z.string().nullable(),
  old_path: z.string().nullable(),
  is_dir: z.boolean(),
  timestamp: z.number(),
  mtime: z.number().nullable(),
  size: z.int().nullable(),
  inode: z.int().nullable(),
});
const created = z.object({
  data: z.object({
    watcher_id: z.string(),
    path: z.string(),
    status: z.literal("running"),
    created_at: z.number(),
    reused: z.boolean(),
  }),
});
const polled = z.object({ events: z.array(event), cursor: z.int(), overflow: z.boolean() });
const listed = z.object({
  data: z.array(z.object({ watcher_id: z.string(), path: z.string(), status: z.string(), subscriber_count: z.int() })),
});
const coded = z.object({ detail: z.object({ code: z.string(), message: z.string() }) });

async function open() {
  const daemon = await startDaemon();
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  const root = daemon.workspace;
  const json = async <T>(schema: z.ZodType<T>, method: string, path: string, body?: unknown, status = 200) => {
    const answer = await client.ask(method, path, body);
    expect([path, answer.status]).toEqual([path, status]);
    return schema.parse(JSON.parse(answer.body.toString()));
  };
  const watch = async (more: object = {}) =>
    (await json(created, "POST", "/v1/file/watch", { path: root, debounce: 10, ...more })).data;
  const poll = (id: string, more: object) => json(polled, "POST", `/v1/file/watch/${id}/poll`, more);
  return { daemon, client, root, json, watch, poll, path: (name: string) => join(root, name) };
}

describe("/v1/file/watch", () => {
  it("reports changes since a number, waits for them, and leaves out what is excluded", async () => {
    const { watch, poll, path } = await open();
    const { watcher_id } = await watch();
    mkdirSync(path("node_modules"));
    writeFileSync(path("node_modules/x"), "x");
    const waiting = poll(watcher_id, { timeout: 10 });
    writeFileSync(path("a.txt"), "abc");
    const first = await waiting;
    expect(first.events).toMatchObject([{ type: "create", path: path("a.txt"), relative_path: "a.txt", size: 3 }]);
    expect([first.cursor, first.overflow]).toEqual([first.events[0]?.seq, false]);
    expect(await poll(watcher_id, { cursor: first.cursor })).toEqual({
      events: [],
      cursor: first.cursor,
      overflow: false,
    });
    rmSync(path("a.txt"));
    const second = await poll(watcher_id, { cursor: first.cursor, timeout: 10 });
    expect(second.events).toMatchObject([{ type: "remove", path: path("a.txt"), size: null }]);
    expect((await poll(watcher_id, { limit: 1 })).events.length).toBe(1);
  });

  it("shares what is wished for twice, keeps to patterns, and ends when everybody has ended it", async () => {
    const { json, watch, poll, path } = await open();
    const mine = await watch({ include_patterns: ["*.py"] });
    const again = await watch({ include_patterns: ["*.py"] });
    expect([mine.reused, again.reused, again.watcher_id]).toEqual([false, true, mine.watcher_id]);
    writeFileSync(path("no.txt"), "");
    writeFileSync(path("yes.py"), "");
    const { events } = await poll(mine.watcher_id, { timeout: 10 });
    expect(events.map(({ relative_path }) => relative_path)).toEqual(["yes.py"]);
    const one = `/v1/file/watch/${mine.watcher_id}`;
    const ended = z.object({ data: z.object({ watcher_id: z.string(), status: z.string() }) });
    expect((await json(ended, "DELETE", one)).data.status).toBe("running");
    expect((await json(listed, "GET", "/v1/file/watch")).data).toMatchObject([{ status: "running" }]);
    expect((await json(ended, "DELETE", one)).data.status).toBe("stopped");
    expect((await json(coded, "DELETE", one, undefined, 404)).detail.code).toBe("WATCHER_NOT_FOUND");
    await json(coded, "POST", `${one}/poll`, {}, 404);
  });

  it("says what it cannot watch, and how many", async () => {
    const { client, json, watch, path } = await open();
    await json(z.object({ detail: z.string() }), "POST", "/v1/file/watch", { path: path("nowhere") }, 400);
    await json(z.object({ detail: z.string() }), "POST", "/v1/file/watch", { path: "relative" }, 400);
    expect((await client.invalid("/v1/file/watch", { exclude: null, debounce: "x" })).map(({ loc }) => loc[1])).toEqual(
      ["path", "exclude", "debounce"],
    );
    expect((await client.invalid("/v1/file/watch/wait", { path: "/x", event_types: ["none"] }))[0]?.loc).toEqual([
      "body",
      "event_types",
      0,
    ]);
    for (let serial = 0; serial < 10; serial += 1) await watch({ debounce: serial });
    const full = await json(coded, "POST", "/v1/file/watch", { path: path("."), debounce: 99 }, 429);
    expect(full.detail.code).toBe("WATCH_LIMIT_EXCEEDED");
  });

  it("waits for a file that is there, that comes, and that does not", async () => {
    const { json, path } = await open();
    const waited = z.object({ event });
    const wait = (more: object) => json(waited, "POST", "/v1/file/watch/wait", { path: path("ready"), ...more });
    const coming = wait({ timeout: 20, event_types: ["create"] });
    // Only events after the request count.
    await new Promise((resolve) => setTimeout(resolve, 200));
    writeFileSync(path("ready"), "{}");
    expect((await coming).event).toMatchObject({ type: "create", path: path("ready"), size: 2 });
    expect((await wait({})).event).toMatchObject({ type: "create", seq: 0 });
    const never = { path: path("never"), timeout: 1 };
    expect((await json(coded, "POST", "/v1/file/watch/wait", never, 408)).detail.code).toBe("WATCH_TIMEOUT");
    const nowhere = { path: path("no/where") };
    await json(z.object({ detail: z.string() }), "POST", "/v1/file/watch/wait", nowhere, 400);
    expect((await json(listed, "GET", "/v1/file/watch")).data).toEqual([]);
  });

  it("streams changes, from a number on, until it ends", async () => {
    const { daemon, client, watch, poll, path } = await open();
    const { watcher_id } = await watch();
    const follow = async (headers: Record<string, string> = {}) => {
      const own = { "x-aio-api-key": daemon.config.token, ...headers };
      const stream = new EventReader(await get(daemon.socketPath, `/v1/file/watch/${watcher_id}/events`, own));
      expect(await stream.next()).toMatchObject({ event: "watch_started", data: { watcher_id } });
      return stream;
    };
    const stream = await follow({ accept: "text/event-stream" });
    writeFileSync(path("one"), "1");
    const one = await stream.next();
    expect(one).toMatchObject({ event: "file_change", data: { type: "create", path: path("one") } });
    const { cursor } = await poll(watcher_id, {});
    expect(one.id).toBe(`${watcher_id}:${cursor}`);
    writeFileSync(path("two"), "2");
    await stream.next();
    const resumed = await follow({ "last-event-id": one.id });
    expect(await resumed.next()).toMatchObject({ data: { path: path("two") } });
    await client.ask("DELETE", `/v1/file/watch/${watcher_id}`);
    await Promise.all([stream.ended, resumed.ended]);
    expect(SCHEMAS.sandbox.parse(JSON.parse((await client.ask("GET", "/v1/sandbox")).body.toString())).success).toBe(
      true,
    );
  });
});

function get(socketPath: string, path: string, headers: Readonly<Record<string, string>>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath, path, headers }, (response) => resolve(response));
    outgoing.once("error", reject);
    onTestFinished(() => void outgoing.destroy());
    outgoing.end();
  });
}

class EventReader {
  readonly ended: Promise<void>;
  readonly #events: { id: string; event: string; data: unknown }[] = [];
  #text = "";
  #onEvent = () => {};

  constructor(response: IncomingMessage) {
    expect(response.headers["content-type"]).toContain("text/event-stream");
    response.setEncoding("utf8").on("data", (text: string) => this.#read(text));
    this.ended = new Promise((resolve) => response.once("end", resolve));
  }

  async next(): Promise<{ id: string; event: string; data: unknown }> {
    for (;;) {
      const found = this.#events.shift();
      if (found !== undefined) return found;
      await new Promise<void>((resolve) => {
        this.#onEvent = resolve;
      });
    }
  }

  #read(text: string): void {
    const blocks = (this.#text + text).split("\n\n");
    this.#text = blocks.pop() ?? "";
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => line.split(/: (.*)/s, 2) as [string, string]));
      const data: unknown = JSON.parse(fields.get("data") ?? "null");
      this.#events.push({ id: fields.get("id") ?? "", event: fields.get("event") ?? "", data });
    }
    this.#onEvent();
  }
}
