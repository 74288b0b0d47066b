/** `sandlot ps` without a fleet: the same list, and only where a fleet would have nothing to do. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { InstanceId } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { quickLook } from "../../src/cli/quick-look.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import type { Fleet } from "../../src/fleet.ts";
import { openFleet } from "../../src/open-fleet.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { hasBubblewrap } from "../gateway/support/gateway-process.ts";

const world = systemWorld();
const KEYS = [
  { user: "ada", thread: "one" },
  { user: "bob", thread: "two" },
];

let home: string;
let config: { readonly home: string; readonly backend: "local" };
let fleet: Fleet | null = null;

describe.skipIf(!hasBubblewrap)("a quick look (skipped where bubblewrap is not installed)", () => {
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), "slq-"));
    config = { home, backend: "local" };
  });
  afterEach(async () => {
    await using last = await openFleet(config);
    for (const key of KEYS) await last.destroy(key, { force: true, purge: true });
    await fleet?.close();
    fleet = null;
    rmSync(home, { recursive: true, force: true });
  });

  async function openWithSandboxes(): Promise<Fleet> {
    fleet = await openFleet(config);
    for (const key of KEYS) await (await fleet.acquire(key)).release();
    return fleet;
  }

  it("shows what a fleet shows, held and parked, and takes no part in the fleet", async () => {
    const open = await openWithSandboxes();
    const lease = await open.acquire(KEYS[0] ?? {});
    const byName = (a: { sandboxId: string }, b: { sandboxId: string }) => (a.sandboxId < b.sandboxId ? -1 : 1);
    const seen = [...((await quickLook(config, {})) ?? [])].sort(byName);
    expect(seen).toEqual([...(await open.list())].sort(byName));
    expect(seen.map(({ state }) => state).sort()).toEqual(["leased", "parked"]);
    await lease.release();
    await open.close();
    fleet = null;
    expect((await quickLook(config, {}))?.map(({ state }) => state)).toEqual(["parked", "parked"]);
  });

  it("leaves it to a fleet where there is none yet, and makes nothing", async () => {
    expect(await quickLook(config, {})).toBeNull();
    expect(readdirSync(home)).toEqual([]);
  });

  it("leaves it to a fleet when a sandbox has ended by itself", async () => {
    const open = await openWithSandboxes();
    await open.close();
    fleet = null;
    const { fleetId } = resolveSettings(config, {});
    const objects = join(home, fleetId, "objects");
    const [name = ""] = readdirSync(objects);
    const { init } = JSON.parse(readFileSync(join(objects, name, "process.json"), "utf8")) as { init: { pid: number } };
    process.kill(init.pid, "SIGKILL");
    await expect.poll(() => quickLook(config, {}), { timeout: 10_000 }).toBeNull();
  });

  it("leaves it to a fleet when a process was killed that holds a sandbox", async () => {
    await openWithSandboxes();
    const { store: place } = resolveSettings(config, {});
    if (place.type !== "sqlite") throw new Error("The store is no file.");
    const store = await openSqliteStore({ path: place.path, world });
    const identity = { ...world.identity, pid: 4_194_303, startTime: "1" };
    const session = {
      engines: [],
      address: null,
      beat: 1,
      epoch: null,
      register: true,
      held: [],
      asOf: 0,
      generationFloor: 0,
    };
    await store.beat({ ...session, instance: "i-dead" as InstanceId, identity });
    expect(await quickLook(config, {})).toBeNull();
    await store.close();
  });

  it("leaves what cannot be opened to a fleet, which says why", async () => {
    await openWithSandboxes();
    expect(await quickLook({ ...config, blueprints: { default: { image: "x" } } }, {})).toBeNull();
    await expect(quickLook({ ...config, limits: { max: -1 } } as never, {})).rejects.toThrow("limits");
  });
});
