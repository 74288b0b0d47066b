/** Checkpoints over HTTP with the client: the walk of a person, the rights of keys, and the events. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotClient } from "@sandlot/client";
import { type FleetEvent, isSandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let bob: Caller;
let client: SandlotClient;
let others: SandlotClient;

beforeAll(async () => {
  stage = await openStage({ fleet: { checkpoints: { automatic: false } } });
  [alice, bob] = [await stage.user("alice"), await stage.user("bob")];
  client = new SandlotClient({ url: alice.url, apiKey: alice.key });
  others = new SandlotClient({ url: bob.url, apiKey: bob.key });
});
afterAll(() => stage.done());

async function run(thread: string, command: string): Promise<string> {
  const result = await alice.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });
  return String(result.stdout);
}

async function codeOf(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => null,
    (refused: unknown) => refused,
  );
  return isSandlotError(error) ? error.code : String(error);
}

describe("checkpoints over HTTP", () => {
  test("are taken, compared, undone, redone and forked, although a gateway keeps a lease", async () => {
    await run("walk", "echo one > file; ln -s file link");
    const { checkpoint, isNew } = await client.checkpoints.take("walk", { label: "it works" });
    expect({ isNew, label: checkpoint.label }).toEqual({ isNew: true, label: "it works" });
    await run("walk", "echo two > file; rm link");
    const diff = await client.checkpoints.diff("walk", { texts: true });
    expect(diff.counts).toEqual({ added: 0, changed: 1, removed: 1 });
    expect(diff.changes.find(({ path }) => path === "workspace/file")?.diff).toContain("-one\n+two\n");
    await client.checkpoints.undo("walk");
    expect(await run("walk", "cat link")).toBe("one\n");
    await client.checkpoints.redo("walk");
    expect(await run("walk", "cat file; ls")).toBe("two\nfile\n");
    expect(await client.branchThread("walk", "walk-2", { checkpoint: "it works" })).toMatchObject({ skipped: [] });
    expect(await run("walk-2", "cat link")).toBe("one\n");
    await client.checkpoints.restore("walk", "it works", { paths: ["workspace/file"] });
    expect(await run("walk", "cat file; ls")).toBe("one\nfile\n");
    expect(await client.checkpoints.verify("walk")).toMatchObject({ damaged: [] });
  });

  test("a request that is asked again finds its result", async () => {
    await run("again", "echo one > file");
    const { checkpoint } = await client.checkpoints.take("again");
    await run("again", "echo two > file");
    const first = await client.checkpoints.restore("again", checkpoint.id, { requestId: "r-1" });
    await run("again", "echo three > file");
    const second = await client.checkpoints.restore("again", checkpoint.id, { requestId: "r-1" });
    expect(second.checkpoint.id).toBe(first.checkpoint.id);
    expect(await run("again", "cat file")).toBe("three\n");
  });

  test("a lease that others hold is refused, and told when it is forced", async () => {
    await run("held", "echo one > file");
    const { checkpoint } = await client.checkpoints.take("held");
    await using lease = await client.acquire({ thread: "held" });
    await lease.sandbox.exec("echo two > file");
    expect(await codeOf(client.checkpoints.restore("held", checkpoint.id))).toBe("sandbox_in_use");
    await client.checkpoints.restore("held", checkpoint.id, { force: true });
    expect((await lease.sandbox.exec("cat file")).stdout).toBe("one\n");
    const [newest] = await client.checkpoints.list("held");
    expect(lease.recovery).toMatchObject({ kind: "restored", checkpoint: { id: newest?.id, differs: false } });
  });

  test("a lease begins a new thread with a checkpoint, an archive, or, for operators, a directory of the host", async () => {
    await run("source", "echo one > file; ln -s file link");
    const { checkpoint } = await client.checkpoints.take("source", { label: "begin" });
    await run("source", "echo two > file");
    const archive = client.checkpoints.export("source", checkpoint.id);
    const sources = [
      [{ thread: "source", checkpoint: "begin" }, "one\n"],
      [{ thread: "source" }, "two\n"],
      [{ archive }, "one\n"],
    ] as const;
    for (const [at, [from, expected]] of sources.entries()) {
      await using lease = await client.acquire({ thread: `seeded-${at}`, from });
      expect((await lease.sandbox.exec("cat link")).stdout).toBe(expected);
      expect(await codeOf(client.acquire({ thread: `seeded-${at}`, from: { thread: "source" } }))).toBe(
        "thread_exists",
      );
    }
    expect(await codeOf(others.acquire({ thread: "stolen", from: { thread: "source" } }))).toBe("thread_not_found");
    const directory = mkdtempSync(join(tmpdir(), "sandlot-seed-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    mkdirSync(join(directory, "workspace"));
    for (const folder of ["", "workspace"]) writeFileSync(join(directory, folder, "file"), "of the host\n");
    expect(await codeOf(client.acquire({ thread: "of-host", from: { directory } }))).toBe("forbidden");
    expect(await codeOf(client.checkpoints.list("of-host").then(({ length }) => Promise.reject(length)))).toBe("0");
    const { url, key } = stage.operator;
    await using lease = await new SandlotClient({ url, apiKey: key }).acquire({
      thread: "of-host",
      from: { directory },
    });
    expect((await lease.sandbox.exec("cat file")).stdout).toBe("of the host\n");
  });

  test("an exported archive begins another thread, and removing one leaves the others", async () => {
    await run("out", "echo one > file; ln -s file link");
    const { checkpoint } = await client.checkpoints.take("out");
    const pieces: Uint8Array[] = [];
    for await (const piece of client.checkpoints.export("out", checkpoint.id)) pieces.push(piece);
    expect(await client.checkpoints.seed("in", Buffer.concat(pieces))).toMatchObject({ fileCount: 2, skipped: [] });
    expect(await run("in", "cat link")).toBe("one\n");
    expect(await codeOf(client.checkpoints.seed("in", Buffer.concat(pieces)))).toBe("thread_exists");
    await client.checkpoints.remove("out", checkpoint.id);
    expect(await client.checkpoints.list("out")).toEqual([]);
  });

  test("a key of another user sees and changes nothing", async () => {
    await run("mine", "echo secret > file");
    const { checkpoint } = await client.checkpoints.take("mine");
    const { checkpoints } = others;
    expect(await checkpoints.list("mine")).toEqual([]);
    const calls = [
      () => checkpoints.find("mine", checkpoint.id),
      () => checkpoints.diff("mine", { from: checkpoint.id }),
      () => checkpoints.restore("mine", checkpoint.id, { force: true }),
      () => checkpoints.remove("mine", checkpoint.id),
      () => checkpoints.verify("mine", { checkpoint: checkpoint.id }),
      async () => {
        for await (const _ of checkpoints.export("mine", checkpoint.id)) return;
      },
    ];
    for (const call of calls) expect(await codeOf(call())).toBe("checkpoint_not_found");
    expect(await codeOf(others.branchThread("mine", "stolen"))).toBe("thread_not_found");
    expect(await codeOf(checkpoints.undo("mine", { force: true }))).toBe("thread_not_found");
    expect(await client.checkpoints.list("mine")).toHaveLength(1);
  });

  test("their events go to their user, and the audit log has the changes", async () => {
    const seen: FleetEvent[] = [];
    const stop = new AbortController();
    const following = (async () => {
      for await (const event of client.events({ signal: stop.signal })) if (event !== null) seen.push(event);
    })().catch(() => undefined);
    await expect
      .poll(async () => {
        await run("events", `echo ${Math.random()} > file`);
        await client.checkpoints.take("events");
        return seen.some(({ type }) => type === "checkpoint-taken");
      })
      .toBe(true);
    await client.checkpoints.undo("events");
    await expect.poll(() => seen.map(({ type }) => type)).toContain("workspace-restored");
    stop.abort();
    await following;
    const { entries } = await stage.operator.ask<{ entries: { route: string; user: string }[] }>(
      200,
      "GET",
      "/v1/audit?thread=events",
    );
    expect(entries).toContainEqual(expect.objectContaining({ route: "/v1/threads/:thread/undo", user: "alice" }));
  });
});
