/**
 * Which addresses a proxy of the environment applies to. A sandbox on this machine or in a private network is reached
 * directly, whatever the variables say: a proxy could not reach it, or should not see the traffic.
 */

import net, { isIP } from "node:net";

type Environment = Readonly<Record<string, string | undefined>>;

/** Loopback, link-local, private and documentation ranges: addresses that are not globally reachable. */
const NEAR = new net.BlockList();
for (const [network, bits] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 29],
  ["192.0.2.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["240.0.0.0", 4],
] as const)
  NEAR.addSubnet(network, bits, "ipv4");
for (const [network, bits] of [
  ["::", 128],
  ["::1", 128],
  ["100::", 64],
  ["2001:db8::", 32],
  ["fc00::", 7],
  ["fe80::", 10],
] as const)
  NEAR.addSubnet(network, bits, "ipv6");

const NEAR_NAMES = /(^|\.)(localhost|docker\.internal|containers\.internal)$/;

/** The proxy for this address; `null` for none. */
export function proxyFor(url: string, environment: Environment): URL | null {
  if (!mayUseProxy(url)) return null;
  const given = environment.http_proxy || environment.HTTP_PROXY || environment.all_proxy || environment.ALL_PROXY;
  if (given === undefined || given === "" || isExcepted(url, environment.no_proxy ?? environment.NO_PROXY ?? ""))
    return null;
  return URL.parse(/^[a-z]+:\/\//i.test(given) ? given : `http://${given}`);
}

/** An unreadable address is not known to be near. */
export function mayUseProxy(url: string): boolean {
  const parsed = URL.parse(url);
  if (parsed === null || parsed.hostname === "") return true;
  const host = parsed.hostname
    .replace(/^\[|\]$/g, "")
    .replace(/\.$/, "")
    .toLowerCase();
  const kind = isIP(host);
  if (kind !== 0) return !NEAR.check(host, kind === 4 ? "ipv4" : "ipv6");
  return host.includes(".") && !NEAR_NAMES.test(host);
}

/** `no_proxy`: names, each with everything below it, or `*`. */
function isExcepted(url: string, list: string): boolean {
  const host = URL.parse(url)?.hostname ?? "";
  return list
    .split(",")
    .map((entry) =>
      entry
        .trim()
        .toLowerCase()
        .replace(/^\*?\./, ""),
    )
    .some((entry) => entry !== "" && (entry === "*" || host === entry || host.endsWith(`.${entry}`)));
}
