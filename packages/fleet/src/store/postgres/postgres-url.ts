/** Addresses such as `postgres://user@host:5432/database?sslmode=verify-full`, as PostgreSQL's own clients read them. */

import { TLS_MODES, type TlsMode } from "../network-keys.ts";

export interface ParsedUrl {
  readonly host?: string;
  readonly port?: number;
  readonly database?: string;
  readonly user?: string;
  readonly tlsMode?: TlsMode;
}

/** The driver connects to one host, and never looks which of several is the primary. */
export const SEVERAL_HOSTS =
  "names several hosts, and a gateway connects to one; give one name that always leads to the primary " +
  "(a virtual address, a DNS record that a failover changes, or a proxy such as HAProxy)";

/** Throws an `Error` with the problem, which never contains the URL: it may hold a password. */
export function parsePostgresUrl(text: string): ParsedUrl {
  if (namesSeveralHosts(text)) throw new Error(SEVERAL_HOSTS);
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !["postgres:", "postgresql:"].includes(url.protocol))
    throw new Error("must be a URL such as postgres://user@host:5432/database");
  if (url.password !== "" || url.searchParams.has("password"))
    throw new Error(
      "has a password, which logs and process lists would show; put it in a file and name that in store.passwordFile, " +
        "or set SANDLOT_POSTGRES_PASSWORD",
    );
  const unknown = [...url.searchParams.keys()].find((key) => key !== "sslmode" && key !== "host");
  if (unknown !== undefined) throw new Error(`has the parameter ${unknown}; known are sslmode and host`);
  const mode = url.searchParams.get("sslmode");
  if (mode !== null && !isTlsMode(mode)) throw new Error(`has an sslmode that is none of ${TLS_MODES.join(", ")}`);
  const host = url.searchParams.get("host") ?? decoded(url.hostname).replace(/^\[(.*)\]$/, "$1");
  const database = decoded(url.pathname.replace(/^\//, ""));
  return {
    ...(host !== "" && { host }),
    ...(url.port !== "" && { port: Number(url.port) }),
    ...(database !== "" && { database }),
    ...(url.username !== "" && { user: decoded(url.username) }),
    ...(mode !== null && { tlsMode: mode }),
  };
}

/** As `psql` reads them: a list in the place of the host, or a parameter `host` with a list or more than once. */
function namesSeveralHosts(text: string): boolean {
  const [, place = "", query = ""] = /^postgres(?:ql)?:\/\/([^/?#]*)[^?#]*\??([^#]*)/.exec(text) ?? [];
  const hosts = new URLSearchParams(query).getAll("host");
  return place.slice(place.lastIndexOf("@") + 1).includes(",") || hosts.length > 1 || hosts.join("").includes(",");
}

function isTlsMode(text: string): text is TlsMode {
  return (TLS_MODES as readonly string[]).includes(text);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("has a percent sign that is not followed by two hexadecimal digits");
  }
}
