/** The configuration of a pod's daemon. The Secret has it; the pod sees it as a file. */

import type { DaemonConfig } from "@sandlot/contract";
import { EGRESS_PORT } from "@sandlot/contract";
import type { CreateSpec } from "../../backend/backend.ts";
import type { FleetKeys } from "../../backend/fleet-keys.ts";
import { modeVariables } from "../../host/egress/sandbox-side/mode-variables.ts";
import { DAEMON_PORT, INSIDE, type KubernetesSettings } from "./settings.ts";

export interface DaemonConfigParts {
  readonly spec: CreateSpec;
  readonly keys: FleetKeys;
  readonly keyId: string;
  readonly settings: KubernetesSettings;
  /** What the image sets in its environment, as far as it is known. */
  readonly image: Readonly<Record<string, string>>;
}

const BASE_ENVIRONMENT = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  HOME: INSIDE.home,
  USER: "sandbox",
  LANG: "C.UTF-8",
  TMPDIR: "/tmp",
} as const;

export function daemonConfig({ spec, keys, keyId, settings, image }: DaemonConfigParts): DaemonConfig {
  const { labels, token, blueprint } = spec;
  const { networkPolicy, egress } = settings.kubernetes;
  const owner = { keyId, sandboxId: labels.sandboxId, blueprintHash: labels.blueprintHash };
  const psk = keys.derive(owner, "daemon");
  const egressPsk = keys.derive(owner, "egress");
  const { mode } = blueprint.network;
  const hasProxy = mode !== "none" && egress.host !== undefined && egressPsk !== null;
  return {
    sandboxId: labels.sandboxId,
    generation: labels.generation,
    token,
    listen: { host: "::", port: DAEMON_PORT, ...(psk !== null && { psk }) },
    orphanTimeoutMs: settings.orphanTimeoutMs,
    environment: { ...BASE_ENVIRONMENT, ...image, ...modeVariables(mode), ...blueprint.environment },
    ownsPidNamespace: true,
    ...(hasProxy && {
      forward: { port: EGRESS_PORT, to: { host: egress.host ?? "", port: egress.port, psk: egressPsk } },
    }),
    ...(networkPolicy === "enforce" &&
      egress.host !== undefined && { canary: { host: egress.host, port: egress.canaryPort } }),
  };
}
