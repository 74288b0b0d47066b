/**
 * A gateway with many sandboxes in memory and a steady stream of events, as a process of its own, so that its cost can
 * be told from the browser's. Arguments: the home, the number of sandboxes, events a second.
 *
 * Prints its URL and its operator's key as one JSON line, then, for each line on its standard input, the processor time
 * that it has used, in microseconds.
 */

import { createInterface } from "node:readline";
import { assembleFleet } from "../../packages/fleet/src/assemble-fleet.ts";
import { createMemoryBackend } from "../../packages/fleet/src/backends/memory/backend.ts";
import { MemoryEngine } from "../../packages/fleet/src/backends/memory/engine.ts";
import { resolveSettings } from "../../packages/fleet/src/config/resolve-settings.ts";
import { readOperatorKey, startGateway } from "../../packages/fleet/src/gateway/index.ts";
import { MemoryStore, newMemoryTables } from "../../packages/fleet/src/store/memory/memory-store.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";

const HOUR_MS = 3_600_000;
const TICK_MS = 50;
const [home = "", sandboxes = "5000", perSecond = "200"] = process.argv.slice(2);
const count = Number(sandboxes);

const world = systemWorld();
const settings = resolveSettings(
  { home, backend: "memory", idleTimeoutMs: 4 * HOUR_MS, limits: { max: count + 100 } },
  {},
);
const store = new MemoryStore(newMemoryTables(world));
const backend = createMemoryBackend({ fleetId: settings.fleetId, engine: new MemoryEngine({ world }), world });
const fleet = await assembleFleet({ settings, world, store, backend });
const gateway = await startGateway({ fleet, home, world, settings: { port: 0 } });

const threadOf = (at: number) => ({ user: `user-${at % 50}`, thread: `conversation-${at}` });
for (let at = 0; at < count; at += 1) await (await fleet.acquire({ ...threadOf(at), purpose: "bench" })).release();

// Taken over, leased, released, parked: four events.
let next = 0;
let owed = 0;
setInterval(() => {
  owed += (Number(perSecond) * TICK_MS) / 1_000 / 4;
  for (; owed >= 1; owed -= 1) {
    next = (next + 7) % count;
    void fleet.acquire({ ...threadOf(next), purpose: "bench" }).then((lease) => lease.release());
  }
}, TICK_MS);

console.log(JSON.stringify({ url: gateway.url, key: await readOperatorKey(home) }));
createInterface({ input: process.stdin }).on("line", () => {
  const { user, system } = process.cpuUsage();
  console.log(String(user + system));
});
process.once("SIGTERM", async () => {
  await gateway.close();
  await fleet.close();
  process.exit(0);
});
