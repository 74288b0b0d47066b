/**
 * The host's side of the wire to sandboxd.
 */

export type { ConnectionPool } from "./connection-pool.ts";
export { DaemonAttachment, prewarm as connectAhead, readActivity, rebindDaemon, renewDaemon } from "./daemon-client.ts";
export type { DaemonSandbox } from "./daemon-sandbox.ts";
export type { DaemonAddress, DaemonKeys } from "./dial.ts";
export { FleetKeys, type KeyPurpose } from "./fleet-keys.ts";
export { readReadyLine } from "./ready.ts";
export type { DaemonTarget } from "./wire.ts";
