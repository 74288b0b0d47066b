/** From the keys of a configuration to the settings of the PostgreSQL store. Reports every mistake with its key. */

import type { StoreContext } from "../entry.ts";
import { resolveTimeout, type TlsMode } from "../network-keys.ts";
import { type ParsedUrl, parsePostgresUrl, SEVERAL_HOSTS } from "./postgres-url.ts";
import { isSocket, type PostgresSettings, type PostgresTls } from "./settings.ts";

type Given<T> = { readonly [Key in keyof T]?: T[Key] | undefined };

export type GivenKeys = Given<{
  url: string;
  host: string;
  port: number;
  database: string | number;
  user: string;
  passwordFile: string;
  schema: string;
  tls: Given<{ mode: TlsMode; caFile: string; certFile: string; keyFile: string }>;
  poolMax: number;
  timeoutMs: number;
}>;

const DEFAULT_HOST = "127.0.0.1";
const DEFAULT_PORT = 5_432;
const DEFAULT_SCHEMA = "sandlot";
/**
 * Commits of one process that can be under way at once. Ten processes with as many, and one more each that listens, stay
 * below the hundred connections that a server has by default.
 */
const DEFAULT_POOL_MAX = 8;

export function resolvePostgres(given: GivenKeys, context: StoreContext): PostgresSettings {
  const { tell } = context;
  const parsed = given.url === undefined ? {} : parseUrl(given.url, given, context);
  for (const [key, path] of Object.entries(filesOf(given))) {
    const wrong = path === undefined ? undefined : context.checkPath(path);
    if (wrong !== undefined) tell(key, wrong);
  }
  const host = given.host ?? parsed.host ?? DEFAULT_HOST;
  if (given.host?.includes(",") === true && !isSocket(given.host)) tell("host", { problem: SEVERAL_HOSTS });
  if (typeof given.database === "number")
    tell("database", { problem: `must be a name with the store type postgres (it is ${given.database})` });
  const required = (key: "database" | "user"): string => {
    const value = given[key] ?? parsed[key];
    if (value === undefined && given.url !== undefined) tell("url", { problem: `must name the ${key}` });
    else if (value === undefined) tell(key, { problem: "must be set with the store type postgres" });
    return String(value ?? "");
  };
  return {
    type: "postgres",
    host,
    port: given.port ?? parsed.port ?? DEFAULT_PORT,
    database: required("database"),
    user: required("user"),
    passwordFile: given.passwordFile ?? null,
    schema: given.schema ?? DEFAULT_SCHEMA,
    tls: resolveTls(given.tls, parsed.tlsMode, host, context),
    poolMax: given.poolMax ?? DEFAULT_POOL_MAX,
    timeoutMs: resolveTimeout(given.timeoutMs, context),
  };
}

function filesOf({ passwordFile, tls }: GivenKeys): Record<string, string | undefined> {
  return { passwordFile, "tls.caFile": tls?.caFile, "tls.certFile": tls?.certFile, "tls.keyFile": tls?.keyFile };
}

function parseUrl(text: string, given: GivenKeys, { tell }: StoreContext): ParsedUrl {
  for (const key of ["host", "port", "database", "user"] as const)
    if (given[key] !== undefined) tell(key, { problem: "is in store.url already; give one of them" });
  try {
    return parsePostgresUrl(text);
  } catch (error) {
    tell("url", { problem: error instanceof Error ? error.message : "must be a URL" });
    // The URL is refused, so what it lacks is not told.
    return { database: "-", user: "-" };
  }
}

function resolveTls(
  given: GivenKeys["tls"],
  asked: TlsMode | undefined,
  host: string,
  { tell }: StoreContext,
): PostgresTls | null {
  const { mode = asked ?? "verify-full", caFile = null, certFile = null, keyFile = null } = given ?? {};
  if ((certFile === null) !== (keyFile === null))
    tell(`tls.${certFile === null ? "certFile" : "keyFile"}`, {
      problem: "must be set too: a certificate needs its key",
    });
  if (asked !== undefined && given?.mode !== undefined && asked !== given.mode)
    tell("tls.mode", { problem: `is ${given.mode}, but store.url has sslmode=${asked}; give one of them` });
  if (mode === "disable" || (given === undefined && asked === undefined)) return null;
  if (isSocket(host)) tell("tls", { problem: "means nothing for a socket on this machine; remove it" });
  return { mode, caFile, certFile, keyFile };
}
