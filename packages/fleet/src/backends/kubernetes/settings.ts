/** The Kubernetes backend's settings: the configured part, and the facts of the fleet that it uses. */

import type { FleetFacts } from "../../backend/entry.ts";
import type { KubernetesConfig } from "./config.ts";

export type KubernetesSettings = Pick<FleetFacts, "fleetId" | "orphanTimeoutMs" | "blueprints" | "storeName"> & {
  readonly kubernetes: KubernetesConfig;
};

/** The port of daemons inside pods. */
export const DAEMON_PORT = 7_411;

/** Our paths inside a pod. */
export const INSIDE = {
  /** The daemon, its Node and its supervisor, in the image or copied there. */
  daemon: "/opt/sandlot",
  /** The Secret's part that the pod may see. */
  config: "/run/sandlot/config",
  /** For the daemon alone: commands that fill `/tmp` must not stop it. */
  temporary: "/run/sandlot/tmp",
  workspace: "/mnt/user-data",
} as const;
