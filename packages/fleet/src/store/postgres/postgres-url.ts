/** Addresses such as `postgres://user@host:5432/database?sslmode=verify-full`, as PostgreSQL's own clients read them. */

import { TLS_MODES, type TlsMode } from "./settings.ts";

export interface ParsedUrl {
  readonly host?: string;
  readonly port?: number;
  readonly database?: string;
  readonly user?: string;
  readonly password?: string;
  readonly tlsMode?: TlsMode;
}

/** Throws an `Error` with the problem, which never contains the URL: it may hold a password. */
export function parsePostgresUrl(text: string): ParsedUrl {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new Error("must be a URL such as postgres://user@host:5432/database");
  }
  if (url.protocol !== "postgres:" && url.protocol !== "postgresql:") throw new Error("must begin with postgres://");
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
    ...(url.password !== "" && { password: decoded(url.password) }),
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
