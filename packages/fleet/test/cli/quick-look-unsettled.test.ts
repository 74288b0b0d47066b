/**
 * `sandlot ps` on a home with pending work: the quick look gives no list of its own there and changes nothing, so that
 * both ways show the same.
 */

import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { BlueprintHash, InstanceId, SandboxId, SandboxSummary, ThreadId, Token, UserId } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { quickLook } from "../../src/cli/quick-look.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { openFleet } from "../../src/open-fleet.ts";
import type { SandboxRecord } from "../../src/store/record.ts";
import { SCHEMA_VERSION } from "../../src/store/sqlite/schema.ts";
import { openSqliteStore, type SqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { hasBubblewrap } from "../gateway/support/gateway-process.ts";
import { runHere } from "./run-here.ts";

const world = systemWorld();
const USER = "ada" as UserId;
const HELD = "held" as ThreadId;
const NEW = "new" as ThreadId;
const DEAD = "i-dead" as InstanceId;
const LIVING = "i-living" as InstanceId;
/** No process has this pid. */
const DEAD_PROCESS = { ...world.identity, pid: 4_194_303, startTime: "1" };
const NO_LIMITS = { max: null, maxPerUser: null, maxPerEngine: null };

let home: string;
let config: { readonly home: string; readonly backend: "local" };

describe.skipIf(!hasBubblewrap)("ps on a home that is not settled (skipped where bubblewrap is not installed)", () => {
  beforeEach(async () => {
    home = mkdtempSync(join(tmpdir(), "slp-"));
    config = { home, backend: "local" };
    await using fleet = await openFleet(config);
    await (await fleet.acquire({ user: USER, thread: HELD })).release();
  });
  afterEach(async () => {
    if (existsSync(storePath())) {
      setVersion(SCHEMA_VERSION, 4);
      await using fleet = await openFleet(config);
      for (const thread of [HELD, NEW]) await fleet.destroy({ user: USER, thread }, { force: true, purge: true });
    }
    rmSync(home, { recursive: true, force: true });
  });

  function storePath(): string {
    const { store } = resolveSettings(config, {});
    if (store.type !== "sqlite") throw new Error("The store is no file.");
    return store.path;
  }

  async function inStore<T>(work: (store: SqliteStore) => Promise<T>): Promise<T> {
    const store = await openSqliteStore({ path: storePath(), world });
    try {
      return await work(store);
    } finally {
      await store.close();
    }
  }

  const contents = () => inStore(async (store) => ({ records: await store.list(), sessions: await store.sessions() }));
  const register = (store: SqliteStore, instance: InstanceId, identity = world.identity) =>
    store.beat({
      ...{ instance, identity, engines: [], address: null, beat: 1, epoch: null, register: true },
      ...{ held: [], asOf: 0, generationFloor: 0 },
    });

  function setVersion(version: number, minReader: number): void {
    const db = new DatabaseSync(storePath());
    db.exec(`PRAGMA user_version = ${version}; UPDATE meta SET min_reader = ${minReader}`);
    db.close();
  }

  async function reserve(store: SqliteStore, actor: InstanceId): Promise<SandboxRecord> {
    const answer = await store.reserve({
      sandboxId: world.randomHex(16) as SandboxId,
      token: world.randomHex(16) as Token,
      backend: "local",
      engine: "",
      blueprint: "default",
      blueprintHash: "hash" as BlueprintHash,
      key: { user: USER, thread: NEW },
      actor,
      limits: NO_LIMITS,
    });
    if (answer.kind !== "reserved") throw new Error(`It is ${answer.kind}.`);
    return answer.record;
  }

  async function stopping(store: SqliteStore, actor: InstanceId): Promise<void> {
    const record = await store.find(USER, HELD);
    if (record === null) throw new Error("There is no record.");
    const { sandboxId, generation } = record;
    await store.stop({ sandboxId, generation, actor, reason: "destroyed", purge: false, mode: { kind: "force" } });
  }

  /** Looks quickly, and finds the home unchanged. */
  async function lookedAt(): Promise<readonly SandboxSummary[] | null> {
    const before = await contents();
    const seen = await quickLook(config, {});
    expect(await contents()).toEqual(before);
    return seen;
  }

  async function ps(): Promise<Record<string, string>> {
    const { code, stdout } = await runHere(["ps", "--json"], { SANDLOT_HOME: home });
    expect(code).toBe(0);
    const { sandboxes } = JSON.parse(stdout) as { sandboxes: readonly SandboxSummary[] };
    return Object.fromEntries(sandboxes.map(({ thread, state }) => [thread ?? "", state]));
  }

  const unsettled: readonly (readonly [string, (store: SqliteStore) => Promise<unknown>, Record<string, string>])[] = [
    [
      "a session whose process is dead holds a sandbox",
      async (store) => {
        await register(store, DEAD, DEAD_PROCESS);
        await store.take({ user: USER, thread: HELD, instance: DEAD, seq: 1, blank: null, orReserve: null });
      },
      { [HELD]: "parked" },
    ],
    [
      "a record is being stopped by a process that is dead",
      async (store) => {
        await register(store, DEAD, DEAD_PROCESS);
        await stopping(store, DEAD);
      },
      {},
    ],
    [
      "a record is being stopped by an instance without a session",
      async (store) => {
        await register(store, DEAD);
        await stopping(store, DEAD);
        await store.leave(DEAD);
      },
      {},
    ],
    [
      "a record is being made by a process that is dead",
      async (store) => {
        await register(store, DEAD, DEAD_PROCESS);
        await reserve(store, DEAD);
      },
      { [HELD]: "parked" },
    ],
    [
      "a record is being made by an instance without a session",
      async (store) => {
        await register(store, DEAD);
        await reserve(store, DEAD);
        await store.leave(DEAD);
      },
      { [HELD]: "parked" },
    ],
  ];

  it.each(unsettled)("%s", async (_, prepare, settled) => {
    await inStore(prepare);
    expect(await lookedAt()).toBeNull();
    // A fleet cleans up, and then both ways show the same.
    await expect.poll(ps).toEqual(settled);
    await expect
      .poll(async () => (await lookedAt())?.map(({ thread, state }) => [thread, state]))
      .toEqual(Object.entries(settled));
  });

  it.each([
    ["made", (store: SqliteStore) => reserve(store, LIVING), { [HELD]: "parked", [NEW]: "creating" }],
    ["stopped", (store: SqliteStore) => stopping(store, LIVING), { [HELD]: "stopping" }],
  ])("shows what a living process has not %s yet, as a fleet does", async (_, begin, shown) => {
    await inStore(async (store) => {
      await register(store, LIVING);
      await begin(store);
    });
    const seen = await lookedAt();
    expect(Object.fromEntries((seen ?? []).map(({ thread, state }) => [thread, state]))).toEqual(shown);
    await using fleet = await openFleet(config);
    expect(seen).toEqual(await fleet.list());
    await inStore((store) => store.leave(LIVING));
  });

  it("refuses a store of a newer version that this one cannot read, in the same words", async () => {
    setVersion(SCHEMA_VERSION + 1, SCHEMA_VERSION + 1);
    const refusal = await quickLook(config, {}).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: "store_unavailable", message: expect.stringContaining("newer version") });
    await expect(openFleet(config)).rejects.toMatchObject({ message: (refusal as Error).message });
    const { code, stderr } = await runHere(["ps"], { SANDLOT_HOME: home });
    expect([code, stderr]).toEqual([1, expect.stringContaining((refusal as Error).message)]);
  });

  it("shows what is in a store of a newer version that this one can read", async () => {
    setVersion(SCHEMA_VERSION + 1, SCHEMA_VERSION);
    const seen = await lookedAt();
    expect(seen).toHaveLength(1);
    await using fleet = await openFleet(config);
    expect(seen).toEqual(await fleet.list());
  });

  it("refuses a home without its store, with the same message", async () => {
    const aside = `${storePath()}.aside`;
    renameSync(storePath(), aside);
    try {
      expect(await quickLook(config, {})).toBeNull();
      expect(existsSync(storePath())).toBe(false);
      await expect(openFleet(config)).rejects.toMatchObject({ code: "store_corrupt" });
      const { code, stderr } = await runHere(["ps"], { SANDLOT_HOME: home });
      expect([code, stderr]).toEqual([1, expect.stringContaining("error store_corrupt")]);
    } finally {
      renameSync(aside, storePath());
    }
  });
});

it("makes nothing in a home that is missing, and ps shows no sandboxes there", async () => {
  const parent = mkdtempSync(join(tmpdir(), "slp-"));
  try {
    const missing = join(parent, "home");
    expect(await quickLook({ home: missing, backend: "local" }, {})).toBeNull();
    expect(readdirSync(parent)).toEqual([]);
    const { code, stdout, stderr } = await runHere(["ps"], { SANDLOT_HOME: missing });
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "", stderr: "There are no sandboxes.\n" });
  } finally {
    rmSync(parent, { recursive: true, force: true });
  }
});
