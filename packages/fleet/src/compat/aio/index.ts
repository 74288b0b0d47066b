/**
 * A sandbox whose image has a server of its own that speaks the AIO HTTP API: the host's side of that wire.
 *
 *   attachment.ts   one holder's connection: open, closed, lost
 *   sandbox.ts      the narrow view of `@sandlot/contract`, and what of it AIO does not have
 *   exec/           commands, through `/v1/bash/*`: each a process of its own, both streams apart
 *   files/          bytes through `/v1/file/*`, everything else through small scripts
 *   wire/           requests, answers, and what a refusal means in words of the contract
 */

export { ActivityReader } from "./activity.ts";
export { AioAttachment } from "./attachment.ts";
export { awaitServer, checkServer, KeyIgnored } from "./readiness.ts";
export { type AioAddress, AioWire } from "./wire/wire.ts";
