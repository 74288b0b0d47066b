/**
 * What a sandbox needs inside for its policy: variables to set, files to mount read-only, and with the way `socket` a
 * program to start.
 *
 * All of it is in one directory. The directory is mounted instead of the socket in it: a proxy that takes over binds a
 * new socket under the same name.
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import tls from "node:tls";
import { EGRESS_PORT, SYSTEM_BUNDLES, TRUST_FILES } from "@sandlot/contract";
import type { NetworkPolicy } from "../../../backend/network/policy.ts";
import { programFile } from "../../../package-files.ts";
import { NAME_SERVER } from "../open/routes.ts";
import { EGRESS_MOUNT } from "./egress-mount.ts";

export const PROXY_SOCKET = "proxy.sock";
const { bundle: BUNDLE, authority: AUTHORITY } = TRUST_FILES;
const NAME_SERVER_FILE = "resolv.conf";
const RESOLVER_FILE = "/etc/resolv.conf";

export interface SandboxNetwork {
  /** Variables for every command. */
  readonly environment: Readonly<Record<string, string>>;
  readonly mounts: readonly { readonly hostPath: string; readonly sandboxPath: string }[];
  /** With the way `socket`: arguments for the sandbox's Node; the program runs as long as the sandbox lives. */
  readonly forwarder: readonly string[] | null;
}

/** `directory` is the host's side of the mount. */
export function sandboxNetwork(policy: NetworkPolicy, directory: string, way: "namespace" | "socket"): SandboxNetwork {
  const hasProxy = needsProxy(policy);
  const trusts = needsAuthority(policy);
  const byForwarder = hasProxy && way === "socket";
  const { files = [], environment = {} } = policy.registries ?? {};
  const placed = files.flatMap(({ name, at }) =>
    at === undefined ? [] : [{ hostPath: join(directory, name), sandboxPath: at }],
  );
  const source = programFile("host/egress/sandbox-side/forwarder");
  const program = `/run/sandlot/forwarder${source.endsWith(".ts") ? ".mts" : ".mjs"}`;
  const mounts = [
    ...(byForwarder || trusts || files.length > 0 ? [{ hostPath: directory, sandboxPath: EGRESS_MOUNT }] : []),
    ...(byForwarder ? [{ hostPath: source, sandboxPath: program }] : []),
    ...placed,
    ...(policy.mode === "open" ? [{ hostPath: join(directory, NAME_SERVER_FILE), sandboxPath: RESOLVER_FILE }] : []),
  ];
  return {
    environment: {
      ...(hasProxy && proxyVariables()),
      ...(trusts && trustVariables(EGRESS_MOUNT)),
      ...(policy.secrets.length > 0 && GIT_WITHOUT_PROMPT),
      ...environment,
    },
    mounts,
    forwarder: byForwarder ? [program, String(EGRESS_PORT), `${EGRESS_MOUNT}/${PROXY_SOCKET}`] : null,
  };
}

/** The proxy adds what a host asks for. A question that only the sandbox's user could answer would wait for ever. */
const GIT_WITHOUT_PROMPT = { GIT_TERMINAL_PROMPT: "0" };

/** `open` has its own transport; it needs a proxy only for rules and secrets. */
export function needsProxy({ mode, allow, secrets, registries }: NetworkPolicy): boolean {
  const adds = allow.length > 0 || secrets.length > 0 || registries !== undefined;
  return mode === "allowlist" || (mode === "open" && adds);
}

/** Whether the sandbox has to trust certificates of our own authority. */
export function needsAuthority(policy: NetworkPolicy): boolean {
  return endedHosts(policy).length > 0;
}

/** The hosts that the proxy ends TLS for. */
export function endedHosts({ secrets, registries }: NetworkPolicy): readonly string[] {
  const urls = (registries?.rules ?? []).map(({ url }) => new URL(url));
  return [
    ...secrets.flatMap(({ via, host }) => (via === "https" ? [host] : [])),
    ...urls.flatMap(({ protocol, hostname }) => (protocol === "https:" ? [hostname] : [])),
  ];
}

export interface InsideFile {
  readonly path: string;
  readonly content: string;
}

/** What the sandbox trusts: the authority's certificate alone, and in a bundle with the usual ones. */
export function trustFiles(directory: string, certificatePem: string): readonly InsideFile[] {
  return [
    { path: join(directory, AUTHORITY), content: certificatePem },
    { path: join(directory, BUNDLE), content: `${publicCertificates()}\n${certificatePem}` },
  ];
}

/** The sandbox's name server in `open` mode. */
export function nameServerFiles(directory: string): readonly InsideFile[] {
  return [{ path: join(directory, NAME_SERVER_FILE), content: `nameserver ${NAME_SERVER}\n` }];
}

/** curl, git, pip, npm, Node, Go, Rust and Java's tools each read some of these. */
export function proxyVariables(): Record<string, string> {
  const url = `http://127.0.0.1:${EGRESS_PORT}`;
  const direct = "localhost,127.0.0.1,127.0.0.0/8,::1,[::1]";
  const variables: Record<string, string> = {};
  for (const name of ["http_proxy", "https_proxy", "all_proxy"]) {
    variables[name] = url;
    variables[name.toUpperCase()] = url;
  }
  // Node 24 and 22.21 use the variables for `fetch` and `http` only with this flag.
  return { ...variables, no_proxy: direct, NO_PROXY: direct, NODE_USE_ENV_PROXY: "1" };
}

/** All but the first replace a program's default trust, so they name the whole bundle. */
export function trustVariables(directory: string): Record<string, string> {
  const bundle = `${directory}/${BUNDLE}`;
  const variables: Record<string, string> = { NODE_EXTRA_CA_CERTS: `${directory}/${AUTHORITY}` };
  for (const name of BUNDLE_VARIABLES) variables[name] = bundle;
  return variables;
}

const BUNDLE_VARIABLES =
  "SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE PIP_CERT GIT_SSL_CAINFO CARGO_HTTP_CAINFO AWS_CA_BUNDLE DENO_CERT".split(
    " ",
  );

function publicCertificates(): string {
  const found = SYSTEM_BUNDLES.find((path) => existsSync(path));
  return found === undefined ? tls.rootCertificates.join("\n") : readFileSync(found, "utf8");
}
