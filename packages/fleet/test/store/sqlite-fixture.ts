/** A temporary home with a store in it, for the tests about files. Everything that a test opened is closed after it. */

import { join } from "node:path";
import type { InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { afterEach, beforeEach } from "vitest";
import { openSqliteStore, type SqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import type { BeatAnswer, ReserveAnswer } from "../../src/store/store.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { temporaryDirectory } from "./stores.ts";

const world = systemWorld();

export const USER = "u" as UserId;
export const THREAD = "t" as ThreadId;
export const corrupt = { code: "store_corrupt" };
export const unavailable = { code: "store_unavailable" };

/** The subject of the present test; new for each. */
export const here = { home: "", path: "" };
let home: ReturnType<typeof temporaryDirectory>;
let stores: SqliteStore[];

export function useTemporaryHome(): void {
  beforeEach(() => {
    home = temporaryDirectory();
    here.home = home.path;
    here.path = join(home.path, "store.db");
    stores = [];
  });
  afterEach(async () => {
    await closeAll();
    home.remove();
  });
}

export async function closeAll(): Promise<void> {
  await Promise.all(stores.map((store) => store.close()));
}

export async function open(path = here.path): Promise<SqliteStore> {
  const store = await openSqliteStore({ path, world, operationTimeoutMs: 500 });
  stores.push(store);
  return store;
}

/** A store with a session and one record of `THREAD`. */
export async function openWithRecord(path = here.path): Promise<{ store: SqliteStore; epoch: string }> {
  const store = await open(path);
  const { epoch } = await store.meta();
  await beat(store, 1);
  await store.endRecovery(epoch, "");
  await reserve(store, THREAD);
  return { store, epoch };
}

export function beat(store: SqliteStore, count: number, epoch: string | null = null): Promise<BeatAnswer> {
  const about = { instance: "a" as InstanceId, identity: world.identity, engines: ["e"], address: null };
  const request = { ...about, held: [], asOf: 0, generationFloor: 0 };
  return store.beat({ ...request, beat: count, epoch: epoch as never, register: true });
}

export function reserve(store: SqliteStore, thread: string): Promise<ReserveAnswer> {
  const made = {
    token: "k" as never,
    backend: "memory",
    engine: "e",
    blueprint: "default",
    blueprintHash: "h" as never,
  };
  const key = { user: USER, thread: thread as ThreadId };
  const request = { ...made, sandboxId: `s-${thread}` as SandboxId, key, actor: "a" as InstanceId };
  return store.reserve({ ...request, limits: { max: null, maxPerUser: null, maxPerEngine: null } });
}
