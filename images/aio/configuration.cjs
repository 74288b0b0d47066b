/**
 * Prints the daemon's configuration for a container of sandlot/aio, in one line.
 *
 * - Commands have the container's environment, without the key.
 * - SANDBOX_API_KEY: every request needs it (`X-AIO-API-Key`, a bearer token, or `api_key` in the query). Without
 *   it port 8080 is open to every client that reaches it, as DeerFlow expects.
 */

"use strict";

const { randomBytes } = require("node:crypto");

/** Variables that shells set for themselves, and the key's own. */
const NOT_PASSED_ON = new Set(["SANDBOX_API_KEY", "_", "PWD", "OLDPWD", "SHLVL", "HOSTNAME"]);
/** The names that the daemon accepts; an engine can set others, and a shell cannot. */
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
  // Without a key the daemon's own API is closed to all clients, and AIO is open to all.
  listen: key === null ? { host: "127.0.0.1", port: 0 } : everywhere,
  ...(key === null && { aioListen: everywhere }),
  ownsPidNamespace: true,
  environment: { HOME: "/mnt/user-data/.home", ...environment },
};
process.stdout.write(JSON.stringify(configuration));
