/** Variables that describe the network to commands and package managers. */

import type { NetworkPolicy } from "../../../backend/network/policy.ts";

/** Without a network every attempt fails the same way, and a package manager would retry for a minute. */
const NO_RETRIES: Readonly<Record<string, string>> = {
  npm_config_fetch_retries: "0",
  npm_config_audit: "false",
  PIP_RETRIES: "0",
  PIP_DISABLE_PIP_VERSION_CHECK: "1",
  UV_HTTP_RETRIES: "0",
  YARN_HTTP_RETRY: "0",
  CARGO_NET_RETRY: "0",
  RES_OPTIONS: "attempts:1 timeout:1",
};

export function modeVariables(mode: NetworkPolicy["mode"]): Readonly<Record<string, string>> {
  return { SANDLOT_NETWORK: mode, ...(mode === "none" ? NO_RETRIES : {}) };
}
