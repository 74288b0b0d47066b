/** The provisioner over a store that was lost: it says so, and forgets no sandbox. What a key may see, by blueprint. */

import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ThreadId, UserId } from "@sandlot/contract";
import { afterEach, beforeEach, expect, it } from "vitest";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import type { LocateRequest } from "../../src/store/store.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { type InnerAio, openInnerAio } from "./support/aio-backend.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

/** Answers as a store does that was lost and has not heard yet which sandboxes some threads have. */
class ForgetfulStore extends MemoryStore {
  forgets: (thread: ThreadId | null) => boolean = () => false;

  override async find(user: UserId, thread: ThreadId) {
    return this.forgets(thread) ? null : super.find(user, thread);
  }

  override async list() {
    return (await super.list()).filter(({ thread }) => !this.forgets(thread));
  }

  override async locate(request: LocateRequest) {
    const place = await super.locate(request);
    return { ...place, recovering: place.recovering || this.forgets(request.thread) };
  }
}

interface Shown {
  readonly sandbox_id: string;
  readonly sandbox_url: string;
}

let inner: InnerAio;
let store: ForgetfulStore;
let stage: Stage;

beforeEach(async () => {
  inner = await openInnerAio();
  store = new ForgetfulStore(newMemoryTables(systemWorld()));
  const blueprints = { other: {} };
  stage = await openStage({ enrich: inner.enrich, store, fleet: { blueprints } });
});
afterEach(async () => {
  store.forgets = () => false;
  for (const { user, thread } of await stage.fleet.list())
    if (user !== null && thread !== null) await stage.fleet.destroy({ user, thread }, { force: true });
  await stage.done();
  await inner.close();
});

const create = (caller: Caller, body: object, status = 200) =>
  caller.ask<Shown>(status, "POST", "/api/sandboxes", { json: body });

/** As if every record had been made long ago. */
async function growOld(home: string): Promise<void> {
  const folder = join(home, "provisioned");
  for (const name of await readdir(folder)) {
    const stored = JSON.parse(await readFile(join(folder, name), "utf8"));
    await writeFile(join(folder, name), JSON.stringify({ ...stored, createdAt: stored.createdAt - 700_000 }));
  }
}

it("does not call a sandbox ended that a recovering store does not know yet, and keeps its URL", async () => {
  const { platform } = stage;
  const order = { sandbox_id: "s", thread_id: "t1", user_id: "ann" };
  const made = await create(platform, order);
  store.forgets = () => true;
  await platform.ask(503, "GET", "/api/sandboxes/s");
  await platform.ask(503, "GET", "/api/sandboxes");
  await create(platform, order, 503);
  store.forgets = () => false;
  expect(await platform.ask(200, "GET", "/api/sandboxes/s")).toEqual(made);
  expect(await create(platform, order)).toEqual(made);
  expect(await platform.ask(200, "GET", "/api/sandboxes")).toEqual({ sandboxes: [made], count: 1 });
});

it("says that a sandbox has ended once the store knows", async () => {
  const { platform, fleet } = stage;
  await create(platform, { sandbox_id: "s", thread_id: "t1", user_id: "ann" });
  await fleet.destroy({ user: "ann", thread: "t1" }, { force: true });
  for (let look = 0; look < 2; look += 1) {
    expect(await platform.ask(200, "GET", "/api/sandboxes")).toEqual({ sandboxes: [], count: 0 });
    await platform.ask(404, "GET", "/api/sandboxes/s");
  }
});

it("sweeps no old record while the store recovers, says so, and makes the new sandbox all the same", async () => {
  const { platform, fleet } = stage;
  const told: string[] = [];
  fleet.events.on((event) => event.type === "housekeeping-failed" && told.push(event.problem));
  const old = await create(platform, { sandbox_id: "old", thread_id: "t1", user_id: "ann" });
  await growOld(stage.home);
  store.forgets = (thread) => thread === "t1";
  await create(platform, { sandbox_id: "new", thread_id: "t2", user_id: "ann" });
  await expect.poll(() => told, { timeout: 30_000 }).toEqual([expect.stringMatching(/^ann\/t1 stays: /)]);
  store.forgets = () => false;
  expect(await platform.ask(200, "GET", "/api/sandboxes/old")).toEqual(old);
});

it("one record that cannot be judged keeps none of the others from the sweep", async () => {
  const { platform, fleet } = stage;
  for (const [index, thread_id] of ["t1", "t2", "t3"].entries()) {
    await create(platform, { sandbox_id: `s${index}`, thread_id, user_id: "ann" });
    await fleet.destroy({ user: "ann", thread: thread_id }, { force: true });
  }
  await growOld(stage.home);
  store.forgets = (thread) => thread === "t2";
  await create(platform, { sandbox_id: "new", thread_id: "t4", user_id: "ann" });
  await expect.poll(() => readdir(join(stage.home, "provisioned")), { timeout: 30_000 }).toHaveLength(2);
  store.forgets = () => false;
});

it("a user's key sees, takes and ends no sandbox of a blueprint that it was not granted", async () => {
  const { gateway, fleet } = stage;
  const key = async (blueprints?: string[]) =>
    stage.platform.as(
      (await gateway.keys.create({ scope: "user", user: "ann", ...(blueprints && { blueprints }) })).key,
    );
  const wide = await key(["default"]);
  const narrow = await key(["other"]);
  const order = { sandbox_id: "s", thread_id: "t1", user_id: "ann" };
  const made = await create(wide, order);
  await narrow.ask(403, "GET", "/api/sandboxes/s");
  await narrow.ask(403, "DELETE", "/api/sandboxes/s");
  await create(narrow, order, 403);
  expect(await narrow.ask(200, "GET", "/api/sandboxes")).toEqual({ sandboxes: [], count: 0 });
  expect(await wide.ask(200, "GET", "/api/sandboxes/s")).toEqual(made);
  expect(await fleet.list()).toHaveLength(1);
});

it("each key of a user is shown a URL of its own, which ends with that key", async () => {
  const { gateway, operator } = stage;
  const key = async () => stage.platform.as((await gateway.keys.create({ scope: "user", user: "ann" })).key);
  const [maker, other] = [await key(), await key()];
  const look = async (url: string) => (await fetch(`${url}/v1/sandbox`)).status;
  const order = { sandbox_id: "s", thread_id: "t1", user_id: "ann" };
  const made = await create(maker, order);
  const seen = await other.ask<Shown>(200, "GET", "/api/sandboxes/s");
  expect(seen.sandbox_url).not.toBe(made.sandbox_url);
  expect(await create(other, order)).toEqual(seen);
  expect(await other.ask(200, "GET", "/api/sandboxes")).toEqual({ sandboxes: [seen], count: 1 });
  // A code belongs to its key: it does not go with another one's id.
  const crossed = `${seen.sandbox_url.slice(0, -48)}${maker.key.slice(4, 16)}${seen.sandbox_url.slice(-36)}`;
  expect(await Promise.all([made.sandbox_url, seen.sandbox_url, crossed].map(look))).toEqual([200, 200, 401]);
  await operator.call("DELETE", `/v1/keys/${other.key.slice(4, 16)}`);
  await expect.poll(() => look(seen.sandbox_url)).toBe(401);
  expect(await look(made.sandbox_url)).toBe(200);
});
