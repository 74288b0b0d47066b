/** What the Redis store is opened with. Passwords and private keys are not among it: `secrets.ts` reads them when used. */

import type { TlsMode } from "../network-keys.ts";

export interface RedisSettings {
  readonly type: "redis";
  readonly topology: Topology;
  readonly database: number;
  readonly user: string | null;
  readonly passwordFile: string | null;
  readonly tls: RedisTls | null;
  readonly prefix: string;
  /** How many replicas must have a durable commit before it is answered. */
  readonly replicasMin: number;
  readonly timeoutMs: number;
}

export type Endpoint = { readonly host: string; readonly port: number } | { readonly path: string };

export type Topology =
  | { readonly kind: "standalone"; readonly endpoint: Endpoint }
  | {
      readonly kind: "sentinel";
      readonly master: string;
      readonly nodes: readonly Endpoint[];
      readonly user: string | null;
      readonly passwordFile: string | null;
    }
  | { readonly kind: "cluster"; readonly nodes: readonly Endpoint[] };

export interface RedisTls {
  readonly mode: Exclude<TlsMode, "disable">;
  readonly caFile: string | null;
  readonly certFile: string | null;
  readonly keyFile: string | null;
}

export function showEndpoint(endpoint: Endpoint): string {
  if ("path" in endpoint) return endpoint.path;
  const { host, port } = endpoint;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Where the store is, without secrets. */
export function showPlace({ topology }: RedisSettings): string {
  if (topology.kind === "standalone") return showEndpoint(topology.endpoint);
  const nodes = topology.nodes.map(showEndpoint).join(", ");
  return topology.kind === "cluster" ? `the cluster of ${nodes}` : `${topology.master}, known to Sentinel at ${nodes}`;
}
