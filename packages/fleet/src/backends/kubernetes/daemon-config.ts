/** The configuration of a pod's daemon. The Secret has it; the pod sees it as a file. */

import type { DaemonConfig } from "@sandlot/contract";
import { EGRESS_PORT } from "@sandlot/contract";
import type { CreateSpec } from "../../backend/backend.ts";
import { homePathOf } from "../../backend/blueprint.ts";
import { podNetwork } from "../../host/egress/cluster/pod-network.ts";
import type { FleetKeys } from "../../sandboxd/fleet-keys.ts";
import { baseEnvironment } from "../../sandboxd/inner-account.ts";
import { DAEMON_PORT, INSIDE, type KubernetesSettings } from "./settings.ts";

export interface DaemonConfigParts {
  readonly spec: CreateSpec;
  readonly keys: FleetKeys;
  readonly settings: KubernetesSettings;
  /** Dates the certificate that the sandbox trusts. */
  readonly nowMs: number;
}

export function daemonConfig({ spec, keys, settings, nowMs }: DaemonConfigParts): DaemonConfig {
  const { labels, token, blueprint } = spec;
  const { networkPolicy, egress } = settings.kubernetes;
  const owner = { sandboxId: labels.sandboxId, blueprintHash: labels.blueprintHash };
  const { mode, allow, secrets = [] } = blueprint.network;
  const { host } = egress;
  const network = podNetwork({
    policy: { mode, allow, secrets },
    directory: `${INSIDE.temporary}/egress`,
    authoritySeed: Buffer.from(keys.issue("authority", owner).key, "hex"),
    nowMs,
  });
  return {
    sandboxId: labels.sandboxId,
    generation: labels.generation,
    token,
    listen: { host: "::", port: DAEMON_PORT, psk: keys.issue("daemon", owner) },
    orphanTimeoutMs: settings.orphanTimeoutMs,
    environment: { ...baseEnvironment(homePathOf(blueprint)), ...network.environment, ...blueprint.environment },
    ownsPidNamespace: true,
    ...(network.trust !== null && { trust: network.trust }),
    ...(network.needsProxy &&
      host !== undefined && {
        forward: { port: EGRESS_PORT, to: { host, port: egress.port, psk: keys.issue("egress", owner) } },
      }),
    ...(networkPolicy === "enforce" && host !== undefined && { canary: { host, port: egress.canaryPort } }),
  };
}
