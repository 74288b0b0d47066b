/** The network policies of sandboxes: what each mode may reach. */

import { expect, it } from "vitest";
import { networkPolicies, POLICY_NAMES } from "../../../src/backends/kubernetes/network/policies.ts";

interface Policy {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly ingress: readonly object[];
    readonly egress: readonly { readonly to: readonly object[] }[];
  };
}

const policies = (gatewaysAreInside: boolean) =>
  networkPolicies({
    egressPort: 3129,
    clusterRanges: ["203.0.113.0/24", "10.1.0.0/16", "2001:db8::/32"],
    gatewaysAreInside,
  }) as Policy[];

it("are three, and lead nowhere, to the proxies, or to the world without private and cluster addresses", () => {
  const [none, allowlist, open] = policies(true);
  expect(policies(true).map(({ metadata }) => metadata.name)).toEqual([...POLICY_NAMES]);
  expect(none?.spec.egress).toEqual([]);
  expect(allowlist?.spec.egress).toHaveLength(1);
  const world = JSON.stringify(open?.spec.egress[1]);
  for (const range of ["10.0.0.0/8", "169.254.0.0/16", "203.0.113.0/24", "fc00::/7"]) expect(world).toContain(range);
  // An exception inside another one is refused by some controllers.
  expect(world).not.toContain("10.1.0.0/16");
});

it("let only gateways of the cluster reach a daemon, where they are inside it", () => {
  expect(JSON.stringify(policies(true)[0]?.spec.ingress)).toContain('"sandlot.dev/role":"gateway"');
  expect(JSON.stringify(policies(false)[0]?.spec.ingress)).not.toContain("from");
});
