/**
 * The network policies of sandboxes: three fixed ones, chosen by a pod's label `sandlot.dev/network`, and present before
 * any pod. There is none for a single sandbox.
 *
 *   sandlot-none       no egress
 *   sandlot-allowlist  the port of the egress proxies
 *   sandlot-open       the world, without private, link-local, shared, metadata and cluster addresses
 *
 * Each allows connections to the daemon's port from gateways only. Policies take effect some time after a pod has
 * started, so every sandbox proves by its canary that they hold before anything runs in it.
 */

import { LABEL, ROLE } from "../pod/names.ts";
import { DAEMON_PORT } from "../settings.ts";

export const POLICY_NAMES = ["sandlot-none", "sandlot-allowlist", "sandlot-open"] as const;

/** Never the world: private, shared, link-local with metadata, benchmark, multicast and reserved addresses. */
const PRIVATE_4 = [
  ...["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"],
  ...["192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"],
];
const PRIVATE_6 = ["::1/128", "::ffff:0:0/96", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff00::/8"];

export interface PolicyOptions {
  readonly egressPort: number;
  readonly clusterRanges: readonly string[];
  /** Where gateways run outside the cluster, they have no label: then every source may connect, and needs the key. */
  readonly gatewaysAreInside: boolean;
}

export function networkPolicies({ egressPort, clusterRanges, gatewaysAreInside }: PolicyOptions): readonly object[] {
  const ranges = (isSixth: boolean) => clusterRanges.filter((range) => range.includes(":") === isSixth);
  const gateways = { podSelector: { matchLabels: { [LABEL.role]: ROLE.gateway } } };
  const ingress = [
    {
      ...(gatewaysAreInside && { from: [gateways] }),
      ports: [{ protocol: "TCP", port: DAEMON_PORT }],
    },
  ];
  const proxies = { podSelector: { matchLabels: { [LABEL.role]: ROLE.egress } } };
  const egresses = {
    none: [],
    allowlist: [{ to: [proxies], ports: [{ protocol: "TCP", port: egressPort }] }],
    open: [
      { to: [proxies], ports: [{ protocol: "TCP", port: egressPort }] },
      {
        to: [
          { ipBlock: { cidr: "0.0.0.0/0", except: [...PRIVATE_4, ...ranges(false).filter(isNotWithinPrivate)] } },
          { ipBlock: { cidr: "::/0", except: [...PRIVATE_6, ...ranges(true)] } },
        ],
      },
    ],
  } as const;
  return Object.entries(egresses).map(([mode, egress]) => ({
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: `sandlot-${mode}` },
    spec: {
      podSelector: { matchLabels: { [LABEL.role]: ROLE.sandbox, [LABEL.network]: mode } },
      policyTypes: ["Ingress", "Egress"],
      ingress,
      egress,
    },
  }));
}

/** An exception inside another one is refused by some policy controllers. */
function isNotWithinPrivate(range: string): boolean {
  return !/^(10\.|127\.|169\.254\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.)/.test(
    range,
  );
}
