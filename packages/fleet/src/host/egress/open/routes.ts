/** The routes of a namespace behind slirp4netns: through its gateway, except to addresses that are not public. */

import { execFileSync } from "node:child_process";
import { networkInterfaces } from "node:os";
import { IPV4_RANGES_NOT_PUBLIC, whyNotPublic } from "../../../backend/network/addresses.ts";
import { enterNamespace } from "../namespace/commands.ts";

/** slirp4netns answers here and forwards to the host's name server. */
export const NAME_SERVER = "10.0.2.3";

const DNS_PORT = 53;

/** For `ip -batch`. The device's own network is more specific than the private range around it, and stays. */
export function setUpLines(own: ReadonlySet<string>): readonly string[] {
  return [
    ...[...IPV4_RANGES_NOT_PUBLIC, ...own].map((range) => `route replace prohibit ${range}`),
    // Only the name server is reachable at this address, not other services of the host behind it.
    `rule add priority 90 to ${NAME_SERVER} dport ${DNS_PORT} lookup main`,
    `rule add priority 91 to ${NAME_SERVER} prohibit`,
  ];
}

/** The public IPv4 addresses of this machine; the others are prohibited by their range. */
export function ownAddresses(): ReadonlySet<string> {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return new Set(
    all.flatMap(({ address, family }) => (family === "IPv4" && whyNotPublic(address) === null ? [address] : [])),
  );
}

/** Routes that should be prohibited and are not, according to the kernel. */
export function missingRoutes(namespacePid: number, own: ReadonlySet<string>): readonly string[] {
  const [program = "", ...enter] = enterNamespace(namespacePid);
  const show = (what: string): string =>
    execFileSync(program, [...enter, "ip", what, "show"], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  const routes = new Set(
    show("route")
      .split("\n")
      .flatMap((line) => (line.startsWith("prohibit ") ? [line.split(" ")[1] ?? ""] : [])),
  );
  const missing = [...IPV4_RANGES_NOT_PUBLIC, ...own].filter((range) => !routes.has(range.replace(/\/32$/, "")));
  return show("rule").includes(`to ${NAME_SERVER} prohibit`) ? missing : [...missing, NAME_SERVER];
}
