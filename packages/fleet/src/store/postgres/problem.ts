/**
 * What went wrong at the server, as a text that a person can act on.
 *
 * - A text names the server, the cause, and the setting or command that mends it.
 * - It never contains a password, a statement, its values or the server's `detail`, which can quote rows and so tokens.
 */

import { SandlotError } from "@sandlot/contract";
import { UNSAFE_SETTING } from "./functions.ts";

export interface Failure {
  readonly problem: string;
  /** The SQLSTATE, or the code of the system's or Node's error. */
  readonly code: string | null;
}

/** The code of a commit that stands on the server, and that no replica has confirmed. The connection is fine. */
export const UNCONFIRMED = "SL002";

/** The server's warning when it answers a commit that no replica has confirmed. */
export const UNREPLICATED = /^canceling (?:the )?wait for synchronous replication/;

/** The settings without which an acknowledged commit can be lost, and the command that mends each. */
const UNSAFE_SETTINGS: Readonly<Record<string, string>> = {
  fsync: "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();",
  full_page_writes: "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf();",
  synchronous_commit:
    "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf(); " +
    "(or ALTER ROLE … / ALTER DATABASE … RESET synchronous_commit)",
};

const RETRY_AFTER_MS = 1_000;

/** By SQLSTATE, or the first two characters of one; by the code of an error of the system, of Node or of TLS. */
const PROBLEMS: Readonly<Record<string, string>> = {
  "28P01": "it refused the password; check SANDLOT_POSTGRES_PASSWORD or store.passwordFile",
  "28000": "it refused the login; check store.user, the password and pg_hba.conf of the server",
  "3D000": "the database does not exist; make it with: createdb, or set store.database",
  "3F000": "the schema is gone; restart this process to make it anew, or restore it from a backup",
  "42P01": "a table of the schema is gone; restart this process to make it anew, or restore the schema from a backup",
  "42883":
    "a function of the schema is gone; restart this process to make it anew, or restore the schema from a backup",
  "42501":
    "the role lacks a right; let it own the schema: CREATE SCHEMA … AUTHORIZATION …, or ALTER SCHEMA … OWNER TO …",
  "53300": "it has no connection left; raise max_connections there, or lower store.poolMax",
  "53100": "its disk is full; free space or enlarge the disk, and it goes on by itself",
  "53200": "it is out of memory, or of max_locks_per_transaction; give it more",
  "54000": "it reached a limit of its own; see its log",
  "25006": "it only reads: it is a standby, or default_transaction_read_only is on; connect to the primary",
  "55000": "it is a standby in recovery; connect to the primary, or promote it with: pg_ctl promote",
  "57014": "it stopped a statement that took longer than store.timeoutMs; look whether it is overloaded",
  "57P01": "it is being shut down or failed over",
  "57P02": "it is restarting after a crash of one of its processes",
  "57P03": "it is starting, stopping or recovering, and takes no connections yet",
  "08": "the connection broke",
  "22": "it refused a value; see its log",
  "40": "it gave up a transaction in favour of another",
  "58": "its operating system reports an error, such as an unreadable file; see its log",
  XX: "it reports damaged data or an internal error; see its log, and restore a backup if pages are damaged",
  ECONNREFUSED: "nothing listens there; start the server, or correct store.host and store.port",
  ENOENT: "there is no such socket; start the server, or correct store.host and store.port",
  EACCES: "its socket may not be opened; give this account access to the directory of the socket",
  ENOTFOUND: "the host name is unknown; correct store.host, or mend DNS",
  EAI_AGAIN: "the host name could not be resolved; mend DNS",
  ETIMEDOUT: "the network did not answer; check routes and firewalls",
  EHOSTUNREACH: "there is no route to the host; check the network",
  ENETUNREACH: "there is no route to the network; check the network",
  ECONNRESET: "the connection was reset",
  EPIPE: "the connection was reset",
  SELF_SIGNED_CERT_IN_CHAIN:
    "its certificate is not signed by a known authority; set store.tls.caFile to the right one",
  DEPTH_ZERO_SELF_SIGNED_CERT: "its certificate is signed by itself; set store.tls.caFile to that certificate",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    "its certificate is not signed by a known authority; set store.tls.caFile to the right one",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    "its certificate is not signed by a known authority; set store.tls.caFile to the right one",
  CERT_SIGNATURE_FAILURE: "its certificate is not signed by the authority of store.tls.caFile",
  CERT_HAS_EXPIRED: "its certificate has expired; renew it on the server",
  CERT_NOT_YET_VALID: "its certificate is not valid yet; check the clocks",
  ERR_TLS_CERT_ALTNAME_INVALID:
    "its certificate is for another host; use that name in store.host, or a fitting certificate",
};

/** Messages of the driver that carry no code. */
const MESSAGES: readonly (readonly [RegExp, string])[] = [
  [/does not support SSL/, "it offers no TLS; set ssl = on there, or store.tls.mode to disable"],
  [/error establishing an SSL connection/, "it offers no TLS; set ssl = on there, or store.tls.mode to disable"],
  [/timeout expired/, "the connection was not made in time; look whether it is overloaded, stopped or cut off"],
  [/Connection terminated|not queryable|was closed/, "the connection broke"],
  [
    /password must be a (?:non-empty )?string/i,
    "it asks for a password; set SANDLOT_POSTGRES_PASSWORD or store.passwordFile",
  ],
];

export function failureOf(error: unknown, place: string): Failure {
  const code = codeOf(error);
  const message = error instanceof Error ? error.message : "";
  if (code === UNSAFE_SETTING) return { code, problem: unsafeSetting(place, message) };
  const known = code === null ? undefined : (PROBLEMS[code] ?? PROBLEMS[code.slice(0, 2)]);
  const text = known ?? MESSAGES.find(([pattern]) => pattern.test(message))?.[1];
  if (text !== undefined) return { code, problem: `the server at ${place}: ${text}` };
  // The first line of an unknown message, which is the server's own or the system's. Neither quotes values there.
  const [line = ""] = message.split("\n");
  return { code, problem: `the server at ${place} failed: ${line.slice(0, 200)}${code === null ? "" : ` (${code})`}` };
}

export function unsafeSetting(place: string, setting: string): string {
  const command = UNSAFE_SETTINGS[setting] ?? `ALTER SYSTEM SET ${setting} = on; SELECT pg_reload_conf();`;
  return `the server at ${place} has ${setting} = off, so it can lose what it has confirmed; run there: ${command}`;
}

export function unavailable(operation: string, problem: string): SandlotError<"store_unavailable"> {
  return new SandlotError("store_unavailable", { operation, problem, retryAfterMs: RETRY_AFTER_MS });
}

function codeOf(error: unknown): string | null {
  if (error === null || typeof error !== "object") return null;
  const { code, errors } = error as { readonly code?: unknown; readonly errors?: unknown };
  if (typeof code === "string") return code;
  // A host with several addresses fails with one error for each.
  return Array.isArray(errors) ? codeOf(errors[0]) : null;
}
