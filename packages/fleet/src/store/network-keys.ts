/** The keys of `store` that the stores on a network share: where the server is, who we are, and how long a call may take. */

import { z } from "zod";
import { durationOverZero } from "../backend/config/amounts.ts";
import type { StoreContext } from "./entry.ts";

export const TLS_MODES = ["disable", "require", "verify-ca", "verify-full"] as const;
export type TlsMode = (typeof TLS_MODES)[number];

const filled = z.string().min(1, "must not be empty");

/** One object for all stores: an entry takes the keys that it has. */
export const NETWORK_KEYS = {
  url: filled
    .optional()
    .describe(
      "The server's address in one line, instead of `host`, `port`, `database` and `user`: " +
        "postgres://user@host:5432/database, redis://user@host:6379/0, rediss:// with TLS, unix:///path for a socket. " +
        "Without a password: that comes from `passwordFile` or the environment.",
    ),
  host: filled.optional().describe("The server's name or address, or the path of its socket. Default: 127.0.0.1."),
  port: z
    .int()
    .min(1, "must be a port, 1 to 65535")
    .max(65_535, "must be a port, 1 to 65535")
    .optional()
    .describe("The server's port. Default: 5432 for postgres, 6379 for redis."),
  database: z
    .union([filled, z.int().min(0, "must not be negative")], { error: "must be a name, or a number for redis" })
    .optional()
    .describe("The database: a name for postgres, a number for redis (default 0)."),
  user: filled.optional().describe("The account at the server. Redis without it uses the user default."),
  passwordFile: filled
    .optional()
    .describe(
      "A file with the password, read for each new connection. " +
        "Default: the environment variable SANDLOT_POSTGRES_PASSWORD or SANDLOT_REDIS_PASSWORD.",
    ),
  tls: z
    .strictObject({
      mode: z
        .enum(TLS_MODES)
        .optional()
        .describe(
          "`verify-full` checks the certificate and the name, `verify-ca` the certificate, `require` neither. " +
            "Default: verify-full if this section or a URL asks for TLS, otherwise disable.",
        ),
      caFile: filled.optional().describe("The authority that signed the server's certificate, as PEM."),
      certFile: filled.optional().describe("Our own certificate, where the server asks for one, as PEM."),
      keyFile: filled.optional().describe("The private key of `certFile`, as PEM."),
    })
    .optional()
    .describe("Encrypt the connection. Needed wherever others can read the network."),
  timeoutMs: durationOverZero("no server answers in no time")
    .optional()
    .describe("How long one call of the store may take. Less than half of `sessionLifetimeMs`. Default: 5 s."),
} as const;

const DEFAULT_TIMEOUT_MS = 5_000;

/** The configured `timeoutMs`, or the default; reports one that could end a session. */
export function resolveTimeout(given: number | undefined, { sessionLifetimeMs, tell }: StoreContext): number {
  const half = sessionLifetimeMs / 2;
  const timeoutMs = given ?? Math.min(DEFAULT_TIMEOUT_MS, Math.max(1, Math.ceil(half) - 1));
  if (timeoutMs >= half)
    tell("timeoutMs", {
      problem:
        `is ${timeoutMs}, but must be less than half of sessionLifetimeMs (${sessionLifetimeMs}), ` +
        "so that one slow call does not end a session",
    });
  return timeoutMs;
}
