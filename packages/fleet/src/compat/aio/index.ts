/**
 * The client of a sandbox whose image has its own server with the AIO HTTP API.
 *
 *   attachment.ts   one holder's connection: open, closed, lost
 *   sandbox.ts      the narrow view of `@sandlot/contract`, and what AIO does not support
 *   exec/           commands, through `/v1/bash/*`: a process each, with separate streams
 *   files/          bytes through `/v1/file/*`, everything else through small scripts
 *   wire/           requests, responses, and the translation of refusals to errors of the contract
 */

export { ActivityReader } from "./activity.ts";
export { AioAttachment } from "./attachment.ts";
export { awaitServer, checkServer, KeyIgnored } from "./readiness.ts";
export { type AioAddress, AioWire } from "./wire/wire.ts";
