/**
 * Prints the daemon's configuration for a container of sandlot/aio, in one line.
 *
 * - Commands have the container's environment, without the key.
 * - SANDBOX_API_KEY: every request needs it (`X-AIO-API-Key`, a bearer token, or `api_key` in the query). Without it port 8080 is open to
 *   all that reach it, as DeerFlow expects.
 */

"use strict";

const { randomBytes } = require("node:crypto");

/** What shells set for themselves, and what is the key's. */
const NOT_PASSED_ON = new Set(["SANDBOX_API_KEY", "_", "PWD", "OLDPWD", "SHLVL", "HOSTNAME"]);
/** As the daemon takes them; another name can be set by an engine and by no shell. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

const key = process.env.SANDBOX_API_KEY || null;
const everywhere = { host: "0.0.0.0", port: 8080 };
const environment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !NOT_PASSED_ON.has(name) && NAME.test(name)),
);
const configuration = {
  sandboxId: "aio",
  generation: 1,
  token: key ?? randomBytes(32).toString("hex"),
  // Without a key the daemon's own API is in nobody's reach, and AIO in everybody's.
  listen: key === null ? { host: "127.0.0.1", port: 0 } : everywhere,
  ...(key === null && { aioListen: everywhere }),
  ownsPidNamespace: true,
  environment: { HOME: "/home/sandbox", ...environment },
};
process.stdout.write(JSON.stringify(configuration));
