/**
 * The host's side of the wire to sandboxd.
 */

export { connectAhead, DaemonAttachment, readActivity, rebindDaemon, renewDaemon } from "./daemon-client.ts";
export type { DaemonSandbox } from "./daemon-sandbox.ts";
export { readReadyLine } from "./ready.ts";
export type { Connections, DaemonTarget } from "./wire.ts";
