/** Writes without a sandbox keep to the workspace's disk budget, as the writes of a sandbox do. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Backend } from "../../src/backend/backend.ts";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { DiskWorkspaces } from "../../src/host/workspaces/disk-workspaces.ts";
import { hostWorkspaces } from "../../src/host/workspaces/host-workspaces.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { Caller, openStage, type Stage } from "./support/stage.ts";

const KIB = 1024;
const MAX_BYTES = 256 * KIB;
/** Beside the four directories of every workspace, and the drafts of running uploads. */
const MAX_FILES = 8;
const BLUEPRINTS: NonNullable<FleetConfig["blueprints"]> = {
  default: { limits: { diskBytes: MAX_BYTES, filesMax: MAX_FILES } },
  roomy: {},
};

let stage: Stage;
let alice: Caller;
let root: string;
let disk: DiskWorkspaces;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "sandlot-budgets-"));
  const world = systemWorld();
  disk = new DiskWorkspaces({ root, account: process.getuid?.() === 0 ? { uid: 59_998, gid: 59_998 } : null, world });
  const { blueprints } = resolveSettings({ home: root, blueprints: BLUEPRINTS }, {});
  stage = await openStage({
    // Sandboxes in memory have no limits; only the files on disk are tested here.
    fleet: { blueprints: { default: {}, roomy: {} } },
    enrich: withoutCheckpoints,
    more: { hostWorkspaces: hostWorkspaces(disk, world, { budgetOf: () => null }), blueprints },
  });
  const { key } = await stage.gateway.keys.create({ scope: "user", user: "alice", blueprints: ["default", "roomy"] });
  alice = new Caller(stage.gateway.url, key);
});
afterAll(async () => {
  await stage.done();
  disk.close();
  await rm(root, { recursive: true });
});

/** A branch is then a copy on the disk. With checkpoints it is a fork, whose budget is the backend suite's matter. */
function withoutCheckpoints(backend: Backend): Backend {
  return new Proxy(backend, {
    get: (of, name) => {
      if (name === "checkpoints") return undefined;
      const value: unknown = Reflect.get(of, name, of);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
}

const form = (...files: readonly (readonly [string, number])[]) => {
  const data = new FormData();
  for (const [name, size] of files) data.append("files", new Blob(["x".repeat(size)]), name);
  return { body: data };
};
const overBudget = { error: { code: "disk_limit_exceeded", retryable: false } };
const uploads = async (thread: string) =>
  (await alice.ask<{ files: { filename: string; sizeBytes: number }[] }>(200, "GET", `/v1/threads/${thread}/uploads`))
    .files;

test("an upload that does not fit is refused whole, and what was there stays as it was", async () => {
  const path = "/v1/threads/u/uploads";
  await alice.ask(200, "POST", path, form(["kept.bin", 100 * KIB]));
  expect(await alice.ask(507, "POST", path, form(["a.bin", 60 * KIB], ["b.bin", 120 * KIB]))).toMatchObject(overBudget);
  expect(await alice.ask(507, "POST", path, form(["kept.bin", 200 * KIB]))).toMatchObject(overBudget);
  expect((await uploads("u")).map(({ filename, sizeBytes }) => [filename, sizeBytes])).toEqual([
    ["kept.bin", 100 * KIB],
  ]);
  await alice.ask(200, "DELETE", `${path}/kept.bin`);
  await alice.ask(200, "POST", path, form(["after.bin", 200 * KIB]));
});

test("so is one with too many files", async () => {
  const names = Array.from({ length: 6 }, (_, index) => [`f${index}.txt`, 1] as const);
  expect(await alice.ask(507, "POST", "/v1/threads/f/uploads", form(...names))).toMatchObject(overBudget);
  expect(await uploads("f")).toEqual([]);
  await alice.ask(200, "POST", "/v1/threads/f/uploads", form(...names.slice(0, 3)));
});

test("two at once do not both find room for one", async () => {
  const post = (name: string) => alice.call("POST", "/v1/threads/c/uploads", form([name, 180 * KIB]));
  const answers = await Promise.all(["a.bin", "b.bin", "c.bin"].map(post));
  const statuses = answers.map(({ status }) => status);
  await Promise.all(answers.map((answer) => answer.text()));
  expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(1);
  expect(statuses.every((status) => status === 200 || status === 507)).toBe(true);
  const sizes = (await uploads("c")).map(({ sizeBytes }) => sizeBytes);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(MAX_BYTES);
});

test("an artifact that does not fit leaves the one before it", async () => {
  const path = "/v1/threads/a/artifacts/report.bin";
  const once = { "if-none-match": "*" };
  await alice.ask(200, "PUT", path, { body: "x".repeat(150 * KIB), headers: once });
  const etag = (await alice.call("HEAD", path)).headers.get("etag") ?? "";
  const large = { body: "y".repeat(200 * KIB), headers: { "if-match": etag } };
  expect(await alice.ask(507, "PUT", path, large)).toMatchObject(overBudget);
  expect((await alice.call("HEAD", path)).headers.get("etag")).toBe(etag);
});

test("a branch takes no more than its own thread may have", async () => {
  // A thread of a blueprint without a budget may hold more than a new thread may.
  const { leaseId } = await alice.ask(201, "POST", "/v1/threads/roomy/leases", { json: { blueprint: "roomy" } });
  await alice.ask(200, "POST", "/v1/threads/roomy/uploads", form(["large.bin", 400 * KIB]));
  expect(await alice.ask(507, "POST", "/v1/threads/roomy/branch", { json: { to: "copy" } })).toMatchObject(overBudget);
  expect(await uploads("copy")).toEqual([]);
  await alice.ask(204, "DELETE", `/v1/leases/${leaseId}`);
  await alice.ask(201, "POST", "/v1/threads/f/branch", { json: { to: "copy" } });
  expect((await uploads("copy")).length).toBe(3);
});
