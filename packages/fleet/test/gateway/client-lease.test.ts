/** A client's lease while its sandbox dies and changes: it behaves as a lease of the library. */

import { inspect } from "node:util";
import { SandlotClient } from "@sandlot/client";
import { sandlotTools } from "@sandlot/client/tools";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let client: SandlotClient;

beforeAll(async () => {
  stage = await openStage();
  client = new SandlotClient({ url: stage.gateway.url, apiKey: (await stage.user("alice")).key });
});
afterAll(() => stage.done());

const sandboxOf = async (thread: string) => (await stage.fleet.list()).find((sandbox) => sandbox.thread === thread);

test("client, lease, sandbox and tools print what they are, and no internals", async () => {
  await using lease = await client.acquire({ thread: "shown", purpose: "look" });
  const { id, sandbox, generation } = lease;
  expect(inspect(client)).toBe(`SandlotClient { url: '${stage.gateway.url}' }`);
  expect(inspect(client.actingFor("ann"))).toBe(`SandlotClient { url: '${stage.gateway.url}', user: 'ann' }`);
  const whose = `purpose: "look", thread: 'shown', sandbox: '${sandbox.id}', recovery: 'empty'`;
  expect(inspect(lease)).toBe(`Lease { id: '${id}', ${whose} }`);
  expect(inspect(sandbox)).toBe(`Sandbox { id: '${sandbox.id}', generation: ${generation} }`);
  await using tools = sandlotTools(client, { thread: "shown", tools: ["bash", "ls"] });
  expect(inspect(tools)).toBe('ToolBox { thread: "shown", tools: bash, ls }');
  expect(inspect(tools.run)).toBe("SandboxRun { thread: \"shown\", state: 'idle' }");
});

test("a file that is not text is the error of the library, and is read lossily when asked", async () => {
  await using lease = await client.acquire({ thread: "latin1" });
  const { files } = lease.sandbox;
  const path = "/mnt/user-data/workspace/latin1";
  await files.write(path, new Uint8Array([0x6f, 0x6b, 0x0a, 0xe9]));
  await expect(files.readText(path)).rejects.toMatchObject({ code: "file_not_text", details: { path } });
  expect(await files.readText(path, { lossy: true })).toBe("ok\n\ufffd");
  expect(await files.readText(path, { startLine: 2, lossy: true })).toBe("\ufffd");
  expect(await files.readText(path, { endLine: 1 })).toBe("ok");
});

test("a crash is reported with the next use, and the lease goes on as in the library", async () => {
  const ours = await stage.fleet.acquire({ user: "alice", thread: "crashing" });
  const theirs = await client.acquire({ thread: "crashing", ttlMs: 60_000 });
  await theirs.sandbox.files.write("/mnt/user-data/workspace/kept", "kept");
  const { generation, sandbox: before } = theirs;
  const losses: string[] = [];
  theirs.onLost(({ reason }) => losses.push(reason));
  await stage.crash("crashing");
  await expect.poll(() => sandboxOf("crashing")).toBeUndefined();

  expect((await ours.sandbox.exec("cat kept")).stdout).toBe("kept");
  expect((await theirs.sandbox.exec("cat kept")).stdout).toBe("kept");
  expect(theirs.generation).toBeGreaterThan(generation);
  expect(theirs.generation).toBe(ours.generation);
  expect(theirs.sandbox.id).toBe(ours.sandbox.id);
  expect(theirs.recovery).toEqual(ours.recovery);
  expect(theirs.recovery.kind).toBe("restored");
  expect(losses).toEqual(["crashed"]);
  await expect(before.exec("true")).rejects.toMatchObject({ code: "stale_generation" });
  await ours.release();
  // Its row is on the new sandbox: it alone holds it.
  expect(await sandboxOf("crashing")).toMatchObject({ state: "leased", holders: expect.arrayContaining([theirs.id]) });
  await theirs.release();
  await expect.poll(async () => (await sandboxOf("crashing"))?.state).toBe("parked");
});

test("a crash without a later use does not end a lease that is renewed", async () => {
  await using lease = await client.acquire({ thread: "quiet", ttlMs: 3_000 });
  const { generation } = lease;
  await stage.crash("quiet");
  await expect.poll(() => lease.generation).toBeGreaterThan(generation);
  // Longer than it lives without a renewal.
  await new Promise((resolve) => setTimeout(resolve, 3_500));
  expect((await lease.sandbox.exec("echo here")).stdout).toBe("here\n");
  expect(await sandboxOf("quiet")).toMatchObject({ holders: expect.arrayContaining([lease.id]) });
});

test("a sandbox destroyed on purpose stays destroyed, and the lease says so", async () => {
  await using lease = await client.acquire({ thread: "doomed", ttlMs: 5_000 });
  const lost = new Promise((resolve) => lease.onLost(({ reason }) => resolve(reason)));
  await client.deleteThread("doomed", { force: true });
  expect(await lost).toBe("destroyed");
  await expect(lease.sandbox.exec("true")).rejects.toMatchObject({ code: "sandbox_lost" });
  expect(await sandboxOf("doomed")).toBeUndefined();
});

test("an aborted command ends although its lease has been released meanwhile", async () => {
  const lease = await client.acquire({ thread: "abandoned" });
  await using other = await client.acquire({ thread: "abandoned" });
  const controller = new AbortController();
  const running = lease.sandbox.exec("sleep 60", { execId: "long", signal: controller.signal });
  const statuses = async () => (await other.sandbox.execs.list()).map(({ status }) => status);
  await expect.poll(statuses).toEqual(["running"]);
  await lease.release();
  controller.abort(new Error("enough"));
  await expect(running).rejects.toThrow("enough");
  await expect.poll(statuses).toEqual(["killed"]);
});
