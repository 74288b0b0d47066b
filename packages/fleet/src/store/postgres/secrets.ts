/**
 * The password, certificates and keys of the PostgreSQL store. They are read for each new connection, so that a changed
 * file takes effect without a restart, and they are kept nowhere else.
 *
 * The password comes from a file or from an environment variable, never from the configuration or a command line. The
 * driver's own sources (`PGPASSWORD`, `~/.pgpass`) are not used.
 */

import { readFileSync } from "node:fs";
import type { ConnectionOptions } from "node:tls";
import { ServerFailure } from "./connection.ts";
import type { PostgresTls } from "./settings.ts";

const PASSWORD_VARIABLE = "SANDLOT_POSTGRES_PASSWORD";

/** An empty password where there is none: a server that asks for one refuses it. Throws a `ServerFailure`. */
export function readPassword(file: string | null, environment: NodeJS.ProcessEnv = process.env): string {
  if (file === null) return environment[PASSWORD_VARIABLE] ?? "";
  return read(file, "passwordFile").replace(/\r?\n$/, "");
}

/** Throws a `ServerFailure`. */
export function readTls(tls: PostgresTls | null): false | ConnectionOptions {
  if (tls === null) return false;
  const { mode, caFile, certFile, keyFile } = tls;
  return {
    rejectUnauthorized: mode !== "require",
    ...(mode !== "verify-full" && { checkServerIdentity: () => undefined }),
    ...(caFile !== null && { ca: read(caFile, "tls.caFile") }),
    ...(certFile !== null && { cert: read(certFile, "tls.certFile") }),
    ...(keyFile !== null && { key: read(keyFile, "tls.keyFile") }),
  };
}

function read(path: string, key: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const { code = "unknown error" } = error as NodeJS.ErrnoException;
    const problem = `store.${key}: ${path} cannot be read (${code}); correct the path, or its permissions`;
    throw new ServerFailure({ problem, code: null });
  }
}
