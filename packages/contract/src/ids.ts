/**
 * Identifiers.
 *
 * Every identifier is a branded string (a generation: a branded number), so that a thread can never be passed
 * in place of a sandbox. Brands exist at compile time only; the wire carries plain strings.
 *
 * Invariants
 * - A `UserId` and a `ThreadId` that came from outside have passed `parseUserId` / `parseThreadId`.
 * - A `SandboxId` is random and never used twice.
 * - A `Generation` grows each time a thread's sandbox is made anew, and is never repeated in the life of a fleet.
 */

import { SandlotError } from "./errors.ts";

declare const brand: unique symbol;
type Brand<Base, Name extends string> = Base & { readonly [brand]: Name };

/** The owner of data and limits (a tenant). */
export type UserId = Brand<string, "UserId">;
/** One conversation of one user: the key of an acquire. */
export type ThreadId = Brand<string, "ThreadId">;
/** 128 bits of a hash over user and thread: it finds the engine objects of a thread without naming the thread. */
export type ThreadKey = Brand<string, "ThreadKey">;
/** One sandbox in all its generations. */
export type SandboxId = Brand<string, "SandboxId">;
/** One running Sandlot process. */
export type InstanceId = Brand<string, "InstanceId">;
/** One caller's right to use a sandbox. */
export type LeaseId = Brand<string, "LeaseId">;
/** The fleet that engine objects belong to. */
export type FleetId = Brand<string, "FleetId">;
/** The secret of a sandbox's daemon. */
export type Token = Brand<string, "Token">;
/** The random name of one life of a store. It changes when the store was lost. */
export type Epoch = Brand<string, "Epoch">;
/** The engine's reference to an object: an engine id, or a pid with its start time. Never a name. */
export type EngineRef = Brand<string, "EngineRef">;
/** Hash of everything that defines a sandbox. */
export type BlueprintHash = Brand<string, "BlueprintHash">;
/** Grows each time a thread's sandbox is made anew; a stale one is refused. */
export type Generation = Brand<number, "Generation">;

/** The pattern of a thread id. The gateway, the CLI and the library all use it. */
export const THREAD_ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
/** The pattern of a user id. The length limit keeps it usable as a directory name. */
export const USER_ID_PATTERN = /^[A-Za-z0-9_-]{1,128}$/;
/** The user of a call that names none. */
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
