/**
 * What the URL of a sandbox may point to. The provisioner writes it, and the fleet then sends commands, files and
 * secrets there: a provisioner that was taken over must not be able to turn the fleet against other services.
 *
 * - http or https, without user, query and fragment, with a plain path.
 * - The provisioner's own host, and then not in the clear where the provisioner is reached over TLS; or a host that the
 *   configuration names. The port is free: DeerFlow's service gives each sandbox its own.
 */

const URL_MAX_CHARS = 2_048;
const PATH_PATTERN = /^[A-Za-z0-9._~/-]*$/;

/** The base URL without a slash at its end. Throws an `Error` that says what is wrong. */
export function checkSandboxUrl(text: string, provisioner: URL, hosts: readonly string[]): string {
  const url = text.length > URL_MAX_CHARS ? null : URL.parse(text);
  if (url === null) throw new Error("the provisioner sent a sandbox_url that is no URL");
  const problem = problemOf(url, provisioner, hosts);
  if (problem !== null) throw new Error(`the provisioner sent a sandbox_url ${problem}`);
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
}

function problemOf(url: URL, provisioner: URL, hosts: readonly string[]): string | null {
  const { protocol, username, password, search, hash, pathname, hostname } = url;
  if (protocol !== "http:" && protocol !== "https:") return `with the scheme ${protocol.slice(0, 20)}`;
  if (username !== "" || password !== "" || search !== "" || hash !== "") return "with a user, a query or a fragment";
  if (!PATH_PATTERN.test(pathname)) return "with a path that is not plain";
  if (hosts.some((host) => isNamed(hostname, host.toLowerCase()))) return null;
  const shown = hostname.slice(0, 100);
  if (hostname !== provisioner.hostname)
    return `at ${shown}, which is not its own host; allow that one in remote.sandboxHosts`;
  if (protocol === "http:" && provisioner.protocol === "https:")
    return `in the clear, while it is reached over TLS itself; allow ${shown} in remote.sandboxHosts`;
  return null;
}

function isNamed(hostname: string, allowed: string): boolean {
  const bare = hostname.replace(/^\[|\]$/g, "");
  return allowed.startsWith("*.") ? bare.endsWith(allowed.slice(1)) : bare === allowed.replace(/^\[|\]$/g, "");
}
