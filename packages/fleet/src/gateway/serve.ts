/**
 * `sandlot serve`: a fleet, and a gateway over it. Stopping drains the gateway first, then hands the sandboxes over to
 * the next instance. The command line installs the signal handlers.
 */

import type { HostWorkspaces } from "../backend/host-workspaces.ts";
import type { GatewayConfig } from "../config/gateway-settings.ts";
import type { Settings } from "../config/settings.ts";
import type { Fleet, SharedEntries } from "../fleet.ts";
import type { StoreSteps } from "../observe/store-steps.ts";
import type { World } from "../world/world.ts";
import type { GatewayAbout } from "./dashboard/gateway-about.ts";
import type { GatewayLogger } from "./logger.ts";
import { type Gateway, startGateway } from "./start-gateway.ts";

export interface ServeOptions {
  /** Opens the served fleet, and returns its workspaces. It is closed with the gateway. */
  readonly openFleet: () => Promise<{
    readonly fleet: Fleet;
    readonly hostWorkspaces: HostWorkspaces | null;
    readonly entries?: SharedEntries | null;
    readonly storeSteps?: StoreSteps;
    readonly settings?: Pick<Settings, "blueprints">;
  }>;
  readonly home: string;
  readonly gateway?: GatewayConfig;
  readonly about?: GatewayAbout;
  readonly world: World;
  readonly logger?: GatewayLogger;
}

export interface ServedGateway extends Gateway {
  readonly fleet: Fleet;
  /** Drains, then hands over; with `destroy` also stops the sandboxes that no other instance holds. Idempotent. */
  close(options?: { readonly destroy?: boolean }): Promise<void>;
}

/** Rejects with `config_invalid` when it may not or cannot listen; nothing is left open then. */
export async function serve({ openFleet, gateway: config, ...options }: ServeOptions): Promise<ServedGateway> {
  const { fleet, hostWorkspaces, entries = null, storeSteps, settings } = await openFleet();
  let gateway: Gateway;
  try {
    gateway = await startGateway({
      ...options,
      ...{ fleet, entries },
      audit: () => fleet.audit(),
      ...(config === undefined ? {} : { settings: config }),
      ...(storeSteps === undefined ? {} : { storeSteps }),
      ...(settings === undefined ? {} : { blueprints: settings.blueprints }),
      ...(hostWorkspaces === null ? {} : { hostWorkspaces }),
    });
  } catch (error) {
    await fleet.close();
    throw error;
  }
  let closing: Promise<void> | null = null;
  const close = async (destroy: boolean) => {
    await gateway.close();
    await fleet.close({ destroy, drainMs: 0 });
  };
  return {
    ...gateway,
    fleet,
    close({ destroy = false } = {}) {
      closing ??= close(destroy);
      return closing;
    },
  };
}
