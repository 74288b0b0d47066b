/** A gateway on a private fleet, in a temporary home. For fuzzing and for load. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetConfig } from "../../packages/fleet/src/config/fleet-config.ts";
import type { GatewayConfig } from "../../packages/fleet/src/config/gateway-settings.ts";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { type Gateway, startGateway } from "../../packages/fleet/src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../packages/fleet/src/open-fleet.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";

export interface GatewayStage {
  readonly fleet: Fleet;
  readonly gateway: Gateway;
  /** Returns what is left that should not be, and closes everything. */
  done(): Promise<readonly string[]>;
}

const FREE: GatewayConfig["rate"] = {
  perKeyPerSecond: 1_000_000,
  perUserPerSecond: 1_000_000,
  burst: 1_000_000,
  perAddressFailuresPerMinute: 1_000_000,
};

export async function openGatewayStage(config: FleetConfig, settings: GatewayConfig = {}): Promise<GatewayStage> {
  const home = await mkdtemp(join(tmpdir(), "sandlot-stage-"));
  const { fleet, hostWorkspaces } = await openFleetAndHost({ home, ...config }).catch(async (error: unknown) => {
    await rm(home, { recursive: true, force: true });
    throw error;
  });
  const gateway = await startGateway({
    fleet,
    home,
    world: systemWorld(),
    ...(hostWorkspaces === null ? {} : { hostWorkspaces }),
    settings: { port: 0, rate: FREE, ...settings },
  });
  return {
    fleet,
    gateway,
    async done() {
      await gateway.close();
      const left = (await fleet.list()).filter(({ holders }) => holders.includes(fleet.instanceId));
      const remote = (await fleet.list()).flatMap(({ holders }) => holders.filter((one) => one !== fleet.instanceId));
      for (const lease of remote) await fleet.remoteLeases.release(lease);
      const held = left.filter(({ holders }) => holders.every((one) => !remote.includes(one)));
      await fleet.close({ destroy: true, drainMs: 0 });
      await rm(home, { recursive: true, force: true });
      return held.map(({ user, thread, holders }) => `${user}/${thread} is still held by ${holders.join(", ")}`);
    },
  };
}
