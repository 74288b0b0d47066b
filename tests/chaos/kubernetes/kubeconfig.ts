/** A kubeconfig file like the administrator's, with another address of the API server. */

import { readFileSync, writeFileSync } from "node:fs";
import type { Cluster } from "./cluster.ts";

export function writeKubeconfig({ kubeconfig, api }: Cluster, url: string, path: string): string {
  const text = readFileSync(kubeconfig, "utf8");
  const address = api.server.replace(/\/$/, "");
  if (!text.includes(address)) throw new Error(`${kubeconfig} does not name ${address}`);
  writeFileSync(path, text.replaceAll(address, url), { mode: 0o600 });
  return path;
}
