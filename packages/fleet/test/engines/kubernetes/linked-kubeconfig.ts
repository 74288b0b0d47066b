/** A kubeconfig file like the administrator's, with another address of the API server. */

import { readFileSync, writeFileSync } from "node:fs";

export function writeKubeconfig(kubeconfig: string, server: string, url: string, path: string): string {
  const text = readFileSync(kubeconfig, "utf8");
  const address = server.replace(/\/$/, "");
  if (!text.includes(address)) throw new Error(`${kubeconfig} does not name ${address}`);
  writeFileSync(path, text.replaceAll(address, url), { mode: 0o600 });
  return path;
}
