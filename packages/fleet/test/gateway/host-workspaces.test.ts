/** Uploads and artifacts where workspaces are on this host's disk: no sandbox is created or awaited for them. */

import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { serve } from "../../src/gateway/serve.ts";
import { DiskWorkspaces } from "../../src/host/workspaces/disk-workspaces.ts";
import { hostWorkspaces } from "../../src/host/workspaces/host-workspaces.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let root: string;
let disk: DiskWorkspaces;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "sandlot-host-"));
  const world = systemWorld();
  const account = process.getuid?.() === 0 ? { uid: 59_998, gid: 59_998 } : null;
  disk = new DiskWorkspaces({ root, account, world });
  stage = await openStage({
    more: { hostWorkspaces: hostWorkspaces(disk, world) },
    settings: { uploads: { maxFileBytes: 1_000 } },
  });
  alice = await stage.user("alice");
});
afterAll(async () => {
  await stage.done();
  disk.close();
  await rm(root, { recursive: true });
});

function form(name: string, content: string): FormData {
  const data = new FormData();
  data.append("files", new Blob([content]), name);
  return data;
}

test("an upload, a list, an artifact and its change need no sandbox", async () => {
  await alice.ask(200, "POST", "/v1/threads/h/uploads", { body: form("a.txt", "one") });
  await alice.ask(413, "POST", "/v1/threads/h/uploads", { body: form("a.txt", "x".repeat(1_001)) });
  expect(await alice.ask(200, "GET", "/v1/threads/h/uploads")).toMatchObject({ count: 1 });
  const artifact = await alice.call("GET", "/v1/threads/h/artifacts/mnt/user-data/uploads/a.txt", {
    headers: { range: "bytes=1-" },
  });
  expect([artifact.status, await artifact.text()]).toEqual([206, "ne"]);
  const path = "/v1/threads/h/artifacts/made.txt";
  await alice.ask(200, "PUT", path, { body: "first", headers: { "if-none-match": "*" } });
  await alice.ask(412, "PUT", path, { body: "second", headers: { "if-none-match": "*" } });
  expect(await (await alice.call("GET", path)).text()).toBe("first");
  await alice.ask(404, "GET", "/v1/threads/other/artifacts/made.txt");
  await alice.ask(200, "DELETE", "/v1/threads/h/uploads/a.txt");
  expect(await stage.fleet.list()).toEqual([]);
});

test("another user's thread of the same name is another one", async () => {
  const bob = await stage.user("bob");
  expect(await bob.ask(200, "GET", "/v1/threads/h/uploads")).toMatchObject({ count: 0 });
  await bob.ask(404, "GET", "/v1/threads/h/artifacts/made.txt");
});

test("a gateway that may not listen leaves no fleet open", async () => {
  const home = await mkdtemp(join(tmpdir(), "sandlot-serve-"));
  let closed = false;
  const { fleet } = stage;
  const close = async () => {
    closed = true;
  };
  const guarded = { ...fleet, close };
  const serving = serve({
    openFleet: async () => ({ fleet: guarded, hostWorkspaces: null }),
    home,
    gateway: { host: "0.0.0.0" },
    world: systemWorld(),
  });
  await expect(serving).rejects.toMatchObject({ code: "config_invalid" });
  expect(closed).toBe(true);
  expect(await readdir(home)).toEqual([]);
  await rm(home, { recursive: true });
});
