/** Variables that tell commands, and the tools of package managers, what kind of network there is. */

import type { NetworkPolicy } from "../../../backend/network/policy.ts";

/** Without a network every try fails the same way, and a package manager would repeat it for a minute. */
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
