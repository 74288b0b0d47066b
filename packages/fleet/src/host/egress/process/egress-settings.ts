/**
 * What the process of a proxy is started with: one JSON document on its stdin, because it holds values of secrets, and
 * arguments and environment can be read by others.
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
  /** Names with fixed addresses, as in `/etc/hosts`. They are judged like all others. */
  readonly hosts?: Readonly<Record<string, readonly string[]>> | undefined;
  /** The account that the process works as, when it is started by root. */
  readonly account?: { readonly uid: number; readonly gid: number } | undefined;
  /** Where the sandbox finds the proxy: on its own loopback, or at a socket in a mounted directory. */
  readonly way: "namespace" | "socket";
  /** With the way `namespace`: a process in that of a sandbox that runs already. Otherwise one is made. */
  readonly namespace?: { readonly pid: number } | undefined;
  /** With nobody connected and nothing to watch, the process ends itself after this time. */
  readonly orphanTimeoutMs: number;
}

/** `inside` is what the sandbox sees; everything else is the host's alone. */
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

/** Tells whether a running process does what is wanted. A changed secret is a change. */
export function settingsHash({ account, namespace, orphanTimeoutMs, ...decisive }: EgressSettings): string {
  return createHash("sha256").update(JSON.stringify(decisive)).digest("hex");
}
