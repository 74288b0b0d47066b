/**
 * The library: `openFleet` opens a fleet, `fleet.acquire` gives a lease, `lease.sandbox` runs commands and reads and writes files.
 *
 * @module sandlot
 */
export * from "../../packages/fleet/src/index.ts";
