/**
 * Passwords, certificates and keys of the Redis store. They are read for each new connection, so that a changed file
 * takes effect without a restart, and they are kept nowhere else.
 *
 * A password comes from its file, or from an environment variable. It never stands in the configuration or on a command
 * line, and `redact` keeps it out of texts that a server returns.
 */

import { readFile } from "node:fs/promises";
import { SandlotError } from "@sandlot/contract";
import type { RedisSettings, RedisTls } from "./settings.ts";

export const PASSWORD_VARIABLE = "SANDLOT_REDIS_PASSWORD";
export const SENTINEL_PASSWORD_VARIABLE = "SANDLOT_REDIS_SENTINEL_PASSWORD";

export interface TlsMaterial {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
  readonly rejectUnauthorized: boolean;
  /** Accepts every name. */
  readonly checkServerIdentity?: () => undefined;
}

export interface Secrets {
  readonly password: string | null;
  /** `null`: without TLS. */
  readonly tls: TlsMaterial | null;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Rejects with `store_unavailable` if a file cannot be read. */
export async function readSecrets(
  settings: RedisSettings,
  of: "server" | "sentinel",
  environment: Environment = process.env,
): Promise<Secrets> {
  const { topology } = settings;
  const isSentinel = of === "sentinel" && topology.kind === "sentinel";
  const file = isSentinel ? topology.passwordFile : settings.passwordFile;
  const variable = isSentinel ? SENTINEL_PASSWORD_VARIABLE : PASSWORD_VARIABLE;
  return {
    password: file === null ? environment[variable] || null : await readPassword(file),
    tls: settings.tls === null ? null : await readTls(settings.tls),
  };
}

/** `text` without any of the secrets: servers put the arguments of a refused command into their answers. */
export function redact(text: string, { password }: Pick<Secrets, "password">): string {
  return password === null || password === "" ? text : text.replaceAll(password, "[password]");
}

async function readPassword(file: string): Promise<string> {
  const text = (await readBytes(file, "passwordFile")).toString("utf8").replace(/\r?\n$/, "");
  if (text !== "") return text;
  throw unreadable("passwordFile", file, "is empty");
}

async function readTls({ mode, caFile, certFile, keyFile }: RedisTls): Promise<TlsMaterial> {
  return {
    rejectUnauthorized: mode !== "require",
    ...(mode === "verify-ca" && { checkServerIdentity: () => undefined }),
    ...(caFile !== null && { ca: await readBytes(caFile, "tls.caFile") }),
    ...(certFile !== null && { cert: await readBytes(certFile, "tls.certFile") }),
    ...(keyFile !== null && { key: await readBytes(keyFile, "tls.keyFile") }),
  };
}

async function readBytes(file: string, key: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    const { code = "unknown error" } = error as NodeJS.ErrnoException;
    throw unreadable(key, file, `cannot be read (${code})`);
  }
}

function unreadable(key: string, file: string, problem: string): SandlotError {
  return new SandlotError("store_unavailable", {
    operation: "connect",
    problem: `store.${key}: ${file} ${problem}`,
    retryAfterMs: 1_000,
  });
}
