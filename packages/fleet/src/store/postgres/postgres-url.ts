/** Addresses such as `postgres://user@host:5432/database?sslmode=verify-full`, as PostgreSQL's own clients read them. */

import { TLS_MODES, type TlsMode } from "../network-keys.ts";

export interface ParsedUrl {
  readonly host?: string;
  readonly port?: number;
  readonly database?: string;
  readonly user?: string;
  readonly tlsMode?: TlsMode;
}

/** Throws an `Error` with the problem, which never contains the URL: it may hold a password. */
export function parsePostgresUrl(text: string): ParsedUrl {
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
