/** What chaos on a cluster hits. */

export const KUBERNETES_KINDS = ["fleet", "pod", "node", "outage"] as const;
export type Kind = (typeof KUBERNETES_KINDS)[number];
