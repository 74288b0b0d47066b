/**
 * The settings of the egress process: one JSON document on its stdin. It contains values of secrets, and other
 * processes can read arguments and environment.
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import type { NetworkPolicy } from "../../../backend/network/policy.ts";
import type { Authority } from "../certificates/authority.ts";
import type { EgressLimits } from "../limits.ts";
import { PROXY_SOCKET } from "../sandbox-side/sandbox-network.ts";

export interface EgressSettings {
  readonly sandboxId: string;
  /** The host's directory of this proxy; see `places`. */
  readonly directory: string;
  readonly policy: NetworkPolicy;
  readonly authority?: Authority | undefined;
  readonly limits?: Partial<EgressLimits> | undefined;
  readonly upstreamCa?: readonly string[] | undefined;
  /** Names with fixed addresses, as in `/etc/hosts`. The policy applies to them as to all others. */
  readonly hosts?: Readonly<Record<string, readonly string[]>> | undefined;
  /** The account that the process runs as, when root starts it. */
  readonly account?: { readonly uid: number; readonly gid: number } | undefined;
  /** Where the sandbox finds the proxy: on its own loopback, or at a socket in a mounted directory. */
  readonly way: "namespace" | "socket";
  /** With the way `namespace`: a process in the namespace of a running sandbox. Otherwise a namespace is created. */
  readonly namespace?: { readonly pid: number } | undefined;
  /** With no connection and no process to watch, the process ends after this time. */
  readonly orphanTimeoutMs: number;
}

/** The sandbox sees `inside`; everything else is visible to the host only. */
export function places(directory: string) {
  const inside = join(directory, "inside");
  return {
    inside,
    proxySocket: join(inside, PROXY_SOCKET),
    controlSocket: join(directory, "control.sock"),
    authority: join(directory, "authority.json"),
    identity: join(directory, "process.json"),
  };
}

/** Compares the settings of a running process with the wanted ones. A changed secret is a change. */
export function settingsHash({ account, namespace, orphanTimeoutMs, ...decisive }: EgressSettings): string {
  return createHash("sha256").update(JSON.stringify(decisive)).digest("hex");
}
