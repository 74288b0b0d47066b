/**
 * `@sandlot/client`: talks to a Sandlot gateway, from Node and from browsers.
 */

export { isSandlotError, type Sandbox, SandlotError } from "@sandlot/contract";
export { ClientLease } from "./lease.ts";
export { type ClientAcquireRequest, SandlotClient, type SandlotClientOptions } from "./sandlot-client.ts";
export { threadFrom, userFrom } from "./tools/thread-identity.ts";
