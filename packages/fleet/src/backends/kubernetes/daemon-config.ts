/** The configuration of a pod's daemon. The Secret has it; the pod sees it as a file. */

import type { DaemonConfig } from "@sandlot/contract";
import { EGRESS_PORT } from "@sandlot/contract";
import type { CreateSpec } from "../../backend/backend.ts";
import { homePathOf } from "../../backend/blueprint.ts";
import { modeVariables } from "../../host/egress/sandbox-side/mode-variables.ts";
import type { FleetKeys } from "../../sandboxd/fleet-keys.ts";
import { baseEnvironment } from "../../sandboxd/inner-account.ts";
import { DAEMON_PORT, type KubernetesSettings } from "./settings.ts";

export interface DaemonConfigParts {
  readonly spec: CreateSpec;
  readonly keys: FleetKeys;
  readonly settings: KubernetesSettings;
}

export function daemonConfig({ spec, keys, settings }: DaemonConfigParts): DaemonConfig {
  const { labels, token, blueprint } = spec;
  const { networkPolicy, egress } = settings.kubernetes;
  const owner = { sandboxId: labels.sandboxId, blueprintHash: labels.blueprintHash };
  const { mode } = blueprint.network;
  const { host } = egress;
  return {
    sandboxId: labels.sandboxId,
    generation: labels.generation,
    token,
    listen: { host: "::", port: DAEMON_PORT, psk: keys.issue("daemon", owner) },
    orphanTimeoutMs: settings.orphanTimeoutMs,
    environment: { ...baseEnvironment(homePathOf(blueprint)), ...modeVariables(mode), ...blueprint.environment },
    ownsPidNamespace: true,
    ...(mode !== "none" &&
      host !== undefined && {
        forward: { port: EGRESS_PORT, to: { host, port: egress.port, psk: keys.issue("egress", owner) } },
      }),
    ...(networkPolicy === "enforce" && host !== undefined && { canary: { host, port: egress.canaryPort } }),
  };
}
