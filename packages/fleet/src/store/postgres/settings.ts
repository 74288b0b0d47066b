/** What the PostgreSQL store is opened with. It contains no secret: `secrets.ts` reads them when they are used. */

import type { TlsMode } from "../network-keys.ts";

export interface PostgresSettings {
  readonly type: "postgres";
  /** A host name, an address, or the directory of a unix socket. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  /** `null`: the password of the environment. */
  readonly passwordFile: string | null;
  /** The schema of the database that holds this fleet's tables. */
  readonly schema: string;
  /** `null`: without TLS. */
  readonly tls: PostgresTls | null;
  readonly poolMax: number;
  /** How long one call may take. */
  readonly timeoutMs: number;
}

export interface PostgresTls {
  readonly mode: Exclude<TlsMode, "disable">;
  readonly caFile: string | null;
  readonly certFile: string | null;
  readonly keyFile: string | null;
}

/** For messages: host and port, or the path of the socket. */
export function placeOf({ host, port }: Pick<PostgresSettings, "host" | "port">): string {
  return isSocket(host) ? `${host}/.s.PGSQL.${port}` : `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

export function isSocket(host: string): boolean {
  return host.startsWith("/");
}
