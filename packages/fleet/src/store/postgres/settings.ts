/** What the PostgreSQL store is opened with. It contains no secret: only where each is found. */

export interface PostgresSettings {
  readonly type: "postgres";
  /** A host name, an address, or the directory of a unix socket. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password: PasswordSource;
  /** The schema of the database that holds this fleet's tables. */
  readonly schema: string;
  readonly tls: TlsSettings;
  readonly poolMax: number;
  /** How long one call may take. */
  readonly timeoutMs: number;
}

/** Read again for each connection, so that a changed password needs no restart. */
export type PasswordSource =
  | { readonly from: "file"; readonly path: string }
  | { readonly from: "variable"; readonly name: string }
  /** The password in the URL of an environment variable. */
  | { readonly from: "url-variable"; readonly name: string }
  | { readonly from: "none" };

export interface TlsSettings {
  readonly mode: TlsMode;
  readonly caFile: string | null;
  readonly certFile: string | null;
  readonly keyFile: string | null;
}

/**
 * As `sslmode` of PostgreSQL's own clients: `require` encrypts and trusts every server, `verify-ca` trusts a server with a
 * certificate of the authority, `verify-full` also compares the host's name.
 */
export type TlsMode = (typeof TLS_MODES)[number];
export const TLS_MODES = ["disable", "require", "verify-ca", "verify-full"] as const;

/** For messages: host and port, or the directory of the socket. */
export function placeOf({ host, port }: Pick<PostgresSettings, "host" | "port">): string {
  return isSocket(host) ? `${host}/.s.PGSQL.${port}` : `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

export function isSocket(host: string): boolean {
  return host.startsWith("/");
}
