/**
 * What Redis and its client report, as `store_unavailable` or `store_corrupt` with what is wrong and what mends it.
 *
 * An error reply begins with a word in capitals, such as OOM or READONLY. Some of them mean that another server is the
 * master by now: the caller then looks for it again.
 */

import { SandlotError } from "@sandlot/contract";

const RETRY_AFTER_MS = 500;
/** Enough of a message for a log line. */
const MESSAGE_MAX = 300;

/** The server is not, or no longer, the one to talk to. */
const MOVED_AWAY = ["READONLY", "MOVED", "ASK", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"];
/** The server is starting, its role is changing, or its replicas have not reported yet. */
const PASSING = [...MOVED_AWAY, "LOADING", "BUSY", "NOREPLICAS"];

export function unavailable(operation: string, problem: string, cause?: unknown): SandlotError {
  return new SandlotError("store_unavailable", { operation, problem, retryAfterMs: RETRY_AFTER_MS }, { cause });
}

/** The error that a call of the store rejects with. `place` says where the server is. */
export function troubleOf(operation: string, place: string, error: unknown): SandlotError {
  if (error instanceof SandlotError) return error;
  if (wordOf(error) === "WRONGTYPE") return foreignKeys(place, "a key of the store");
  return unavailable(operation, `redis at ${place} ${problemOf(error)}`, error);
}

/** The first word of an error reply; `""` for every other error. */
export function wordOf(error: unknown): string {
  return /^(?:-)?([A-Z]{2,}[A-Z0-9]*)(?: |$)/.exec(messageOf(error))?.[1] ?? "";
}

export function meansAnotherMaster(error: unknown): boolean {
  return MOVED_AWAY.includes(wordOf(error));
}

/** Whether another attempt soon may succeed with the same settings. */
export function isPassing(error: unknown): boolean {
  if (error instanceof SandlotError) return false;
  const { code } = (error ?? {}) as { readonly code?: unknown };
  if (typeof code === "string") return !isDistrust(code);
  return PASSING.includes(wordOf(error)) || /^(?:Socket closed|Connection timeout)/.test(messageOf(error));
}

/** Another program has keys with our names. */
export function foreignKeys(place: string, key: string): SandlotError {
  const problem = `${key} belongs to another program; give the fleet its own store.prefix`;
  return new SandlotError("store_corrupt", { path: place, problem });
}

function isDistrust(code: string): boolean {
  return /CERT|UNABLE_TO|SELF_SIGNED|ERR_TLS|HOSTNAME/.test(code);
}

/** A clause that follows the name of the server. */
function problemOf(error: unknown): string {
  const message = messageOf(error).slice(0, MESSAGE_MAX);
  const { code } = (error ?? {}) as { readonly code?: unknown };
  // As Redis says it, and as Valkey does.
  if (/user executing the script can't (?:run|access)|ACL failure in script/.test(message))
    return problemOfRights(message);
  switch (wordOf(error)) {
    case "OOM":
      return "is out of memory: raise maxmemory (redis-cli CONFIG SET maxmemory <bytes>)";
    case "READONLY":
      return "is a replica now; looking for the master";
    case "NOREPLICAS":
      return "has too few replicas that keep up (min-replicas-to-write); start them, or repair their link";
    case "MISCONF":
      return `cannot save to its disk: ${message}`;
    case "LOADING":
      return "is loading its data";
    case "BUSY":
      return "is busy with a script (redis-cli SCRIPT KILL ends it)";
    case "WRONGPASS":
    case "NOAUTH":
      return "refused the user or the password: check store.user and store.passwordFile";
    case "NOPERM":
      return problemOfRights(message);
    default:
  }
  if (typeof code === "string" && isDistrust(code))
    return `has a certificate that is not trusted (${code}); set store.tls.caFile to the CA that signed it`;
  if (typeof code === "string" && code !== "") return `cannot be reached (${code})`;
  return `answered: ${message}`;
}

/** `what` is the server's message, or the command. */
export function problemOfRights(what: string): string {
  return `does not let this user do it (${what}); docs/stores/redis.md lists the rights of a user`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
