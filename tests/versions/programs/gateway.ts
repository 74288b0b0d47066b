/**
 * A gateway over a fleet in memory whose sandboxes are one running daemon. Part of the packed fixture of a version, so
 * it stands alone: its one argument is the settings, `{ home, daemon }`; it prints `{ url, key }` and ends with its
 * stdin.
 */

import { assembleFleet } from "../../../packages/fleet/src/assemble-fleet.ts";
import type { Attachment, Backend, Target } from "../../../packages/fleet/src/backend/backend.ts";
import { MemoryTimelines } from "../../../packages/fleet/src/backend/memory-timelines.ts";
import { createMemoryBackend } from "../../../packages/fleet/src/backends/memory/backend.ts";
import { MemoryEngine } from "../../../packages/fleet/src/backends/memory/engine.ts";
import { resolveSettings } from "../../../packages/fleet/src/config/resolve-settings.ts";
import { readOperatorKey } from "../../../packages/fleet/src/gateway/keys/operator-key.ts";
import { startGateway } from "../../../packages/fleet/src/gateway/start-gateway.ts";
import { DaemonAttachment, type DaemonTarget } from "../../../packages/fleet/src/sandboxd/index.ts";
import { MemoryStore, newMemoryTables } from "../../../packages/fleet/src/store/memory/memory-store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";

const { home, daemon } = JSON.parse(process.argv[2] ?? "{}") as { home: string; daemon: DaemonTarget };
const world = systemWorld();
const settings = resolveSettings({ home, backend: "memory", store: { type: "memory" } }, {});
const backend = createMemoryBackend({ fleetId: settings.fleetId, engine: new MemoryEngine({ world }), world });
const store = new MemoryStore(newMemoryTables(world));
const timelines = new MemoryTimelines(world);
const fleet = await assembleFleet({ settings, world, store, backend: withDaemon(backend), timelines });
const gateway = await startGateway({ fleet, home, world, settings: { port: 0 } });
console.log(JSON.stringify({ url: gateway.url, key: await readOperatorKey(home) }));
for await (const _ of process.stdin);
await gateway.close();
await fleet.close({ destroy: true, drainMs: 0 });
process.exit(0);

function withDaemon(inner: Backend): Backend {
  return new Proxy(inner, {
    get(target, name) {
      if (name === "attach") return (to: Target, signal: AbortSignal) => attach(target, to, signal);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

async function attach(inner: Backend, to: Target, signal: AbortSignal): Promise<Attachment> {
  const attachment = await inner.attach(to, signal);
  const attached = await DaemonAttachment.open(daemon, world, signal);
  const { sandbox } = attached;
  return {
    sandbox: {
      ...sandbox,
      ...{ id: attachment.sandbox.id, generation: attachment.sandbox.generation },
      exec: (...given) => sandbox.exec(...given),
      spawn: (...given) => sandbox.spawn(...given),
      processes: () => sandbox.processes(),
      usage: () => sandbox.usage(),
    },
    closed: attachment.closed,
    connect: (port, given) => attached.connect(port, given),
    async close() {
      await attached.close();
      await attachment.close();
    },
  };
}
