/**
 * What a sandbox in a cluster needs inside for its policy: variables for its commands, and the authority that it trusts.
 * The daemon forwards the proxy's port (`DaemonConfig.forward`) and writes the trust files (`DaemonConfig.trust`): a pod
 * has no directory of this host.
 */

import type { DaemonTrust } from "@sandlot/contract";
import type { NetworkPolicy } from "../../../backend/network/policy.ts";
import { deriveAuthority } from "../certificates/authority.ts";
import { modeVariables } from "../sandbox-side/mode-variables.ts";
import { needsAuthority, needsProxy, proxyVariables, trustVariables } from "../sandbox-side/sandbox-network.ts";

export interface PodNetwork {
  readonly environment: Readonly<Record<string, string>>;
  /** Whether the daemon has to forward the port of the proxy. */
  readonly needsProxy: boolean;
  readonly trust: DaemonTrust | null;
}

export interface PodNetworkOptions {
  readonly policy: NetworkPolicy;
  /** Where the daemon may write trust files: a directory of the pod's own. */
  readonly directory: string;
  /** The key of purpose `authority` that was issued to the sandbox. */
  readonly authoritySeed: Buffer;
  readonly nowMs: number;
}

export function podNetwork({ policy, directory, authoritySeed, nowMs }: PodNetworkOptions): PodNetwork {
  const isProxied = needsProxy(policy);
  const trusts = needsAuthority(policy);
  const hosts = policy.secrets.flatMap(({ via, host }) => (via === "https" ? [host] : []));
  return {
    environment: {
      ...modeVariables(policy.mode),
      ...(isProxied && proxyVariables()),
      ...(trusts && trustVariables(directory)),
    },
    needsProxy: isProxied,
    trust: trusts ? { directory, certificatePem: deriveAuthority(authoritySeed, hosts, nowMs).certificatePem } : null,
  };
}
