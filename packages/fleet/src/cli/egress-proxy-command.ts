/**
 * `sandlot egress-proxy`: the egress of a cluster's sandboxes, as a process of its own. It needs the fleet's
 * configuration and its keys, and no store: see `host/egress/cluster/`.
 */

import { readFileSync } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import type { NetworkPolicy } from "../backend/network/policy.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import { ClusterEgress } from "../host/egress/cluster/cluster-egress.ts";
import { FleetKeys } from "../sandboxd/fleet-keys.ts";
import { systemWorld } from "../world/system-world.ts";
import { loadSettings } from "./load-settings.ts";
import type { Terminal } from "./terminal.ts";

export interface EgressProxyCommandOptions {
  readonly config?: string;
  readonly keys: string;
  readonly host: string;
  readonly port: number;
  readonly canaryPort: number;
  readonly drainMs: number;
  readonly json: boolean;
}

export async function egressProxyCommand(
  terminal: Terminal,
  options: EgressProxyCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { config } = await loadSettings(options.config, terminal.environment);
  const { blueprints } = resolveSettings(config, terminal.environment);
  const policies = new Map<string, NetworkPolicy>(
    Object.values(blueprints).map(({ hash, blueprint: { network } }) => [
      hash,
      { mode: network.mode, allow: network.allow, secrets: network.secrets ?? [] },
    ]),
  );
  const keys = readKeys(options.keys);
  const egress = new ClusterEgress({
    world: systemWorld(),
    keys: {
      named: (identity) => keys.named(identity),
      authoritySeed: (identity) => {
        const seed = keys.related(identity, "authority");
        return seed === null ? null : Buffer.from(seed.key, "hex");
      },
    },
    policyOf: (hash) => policies.get(hash) ?? null,
    onFault: (problem) => terminal.error(`A connection failed: ${problem}\n`),
  });
  const { port, canaryPort } = await egress.listen(options);
  const proxied = [...policies.values()].filter(({ mode }) => mode !== "none").length;
  const told = { port, canaryPort, blueprints: policies.size, proxied };
  terminal.out(
    options.json
      ? `${JSON.stringify(told)}\n`
      : `Egress proxy on ${options.host} port ${port}, canary on port ${canaryPort}; ` +
          `${proxied} of ${policies.size} blueprints have a network.\n`,
  );
  if (!signal.aborted)
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  await egress.drain(options.drainMs);
}

function readKeys(file: string): FleetKeys {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new SandlotError("config_unreadable", { file, problem: (error as Error).message });
  }
  return FleetKeys.parse(text, file);
}
