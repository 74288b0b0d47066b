/**
 * Identifiers.
 *
 * Every identifier is a branded string (a generation: a branded number), so that a thread can never be passed
 * where a sandbox is meant. Brands exist at compile time only; the wire carries plain strings.
 *
 * Invariants
 * - A `UserId` and a `ThreadId` that came from outside have passed `parseUserId` / `parseThreadId`.
 * - A `SandboxId` is random and never used twice.
 * - A `Generation` grows each time a thread's sandbox is made anew, and is never repeated in the life of a fleet.
 */

import { SandlotError } from "./errors.ts";

declare const brand: unique symbol;
type Brand<Base, Name extends string> = Base & { readonly [brand]: Name };

/** Whom data and limits belong to (a tenant). */
export type UserId = Brand<string, "UserId">;
/** One conversation of one user: the key by which sandboxes are asked for. */
export type ThreadId = Brand<string, "ThreadId">;
/** 128 bits of a hash over user and thread: how engine objects of a thread are found again without naming it. */
export type ThreadKey = Brand<string, "ThreadKey">;
/** One sandbox, whatever its generation. */
export type SandboxId = Brand<string, "SandboxId">;
/** One running Sandlot process. */
export type InstanceId = Brand<string, "InstanceId">;
/** One caller's right to use a sandbox. */
export type LeaseId = Brand<string, "LeaseId">;
/** The fleet that engine objects belong to. */
export type FleetId = Brand<string, "FleetId">;
/** The secret a sandbox's daemon expects. */
export type Token = Brand<string, "Token">;
/** The random name of one life of a store. It changes when the store was lost. */
export type Epoch = Brand<string, "Epoch">;
/** What an engine calls an object: an engine id, or a pid with its start time. Never a name. */
export type EngineRef = Brand<string, "EngineRef">;
/** Hash of everything a sandbox is made from. */
export type BlueprintHash = Brand<string, "BlueprintHash">;
/** Grows each time a thread's sandbox is made anew; a stale one is refused. */
export type Generation = Brand<number, "Generation">;

/** What a thread id may look like. The gateway, the CLI and the library all use this one pattern. */
export const THREAD_ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
/** What a user id may look like. The bound on its length keeps it usable as a directory name. */
export const USER_ID_PATTERN = /^[A-Za-z0-9_-]{1,128}$/;
/** Who is meant when nobody is named. */
export const DEFAULT_USER = "default" as UserId;

/** Checks a thread id that came from outside. */
export function parseThreadId(value: unknown): ThreadId {
  if (typeof value === "string" && THREAD_ID_PATTERN.test(value)) return value as ThreadId;
  throw new SandlotError("invalid_thread_id", { value: describe(value), pattern: THREAD_ID_PATTERN.source });
}

/** Checks a user id that came from outside. */
export function parseUserId(value: unknown): UserId {
  if (typeof value === "string" && USER_ID_PATTERN.test(value)) return value as UserId;
  throw new SandlotError("invalid_user_id", { value: describe(value), pattern: USER_ID_PATTERN.source });
}

/** Shows a bad value in an error without letting it grow the error. */
function describe(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
