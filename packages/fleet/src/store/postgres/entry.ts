/** The PostgreSQL store in the registry. */

import { z } from "zod";
import type { StoreContext, StoreEntry } from "../entry.ts";
import { NETWORK_KEYS } from "../network-keys.ts";
import { type GivenKeys, resolvePostgres } from "./resolve-postgres.ts";
import { type PostgresSettings, placeOf } from "./settings.ts";

const { url, host, port, database, user, passwordFile, tls, timeoutMs } = NETWORK_KEYS;

export const POSTGRES_STORE = {
  name: "postgres",
  isShared: true,
  about: "a PostgreSQL database that several hosts share (version 15 or newer)",
  keys: {
    url,
    host,
    port,
    database,
    user,
    passwordFile,
    tls,
    timeoutMs,
    schema: z
      .string()
      .regex(
        /^[a-z_][a-z0-9_]{0,39}$/,
        "must be 1 to 40 lower-case letters, digits or underscores, with no digit first",
      )
      .refine((name) => !name.startsWith("pg_"), "must not begin with pg_, which belongs to the server")
      .optional()
      .describe(
        "PostgreSQL: the schema of the fleet's tables, made at first use. Two fleets in one database need two. Default: sandlot.",
      ),
    poolMax: z
      .int()
      .min(1, "must be at least 1")
      .max(100, "must be at most 100")
      .optional()
      .describe("PostgreSQL: how many connections one process opens at most, beside the one that listens. Default: 8."),
  },
  resolve: (given: GivenKeys, context: StoreContext) => resolvePostgres(given, context),
  describe: (settings) => `postgres at ${placeOf(settings)}, database ${settings.database}, schema ${settings.schema}`,
  async open(settings, world) {
    const { openPostgresRowServer } = await import("./postgres-row-server.ts");
    const { RowStore } = await import("../rows/row-store.ts");
    const server = await openPostgresRowServer(settings, world);
    return new RowStore({ server, world, timeoutMs: settings.timeoutMs });
  },
  // Only the server knows. A command that looks opens a fleet where there is nothing to see, which makes the tables too.
  exists: () => true,
  async doctor(settings) {
    const { postgresFindings } = await import("./doctor.ts");
    return postgresFindings(settings);
  },
} as const satisfies StoreEntry<GivenKeys, PostgresSettings>;
