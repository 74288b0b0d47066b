/**
 * The API server as this backend uses it: the few calls that it makes, each with a deadline.
 *
 *   object     one resource of the namespace, or of the cluster; only the metadata is parsed here
 *   refusal    the API server has answered, and the answer is no: `ApiRefusal`, with status and reason
 *   no answer  `engine_unavailable`; a request that changes something may then have taken effect
 *
 * Invariants
 * - Every object is addressed by kind and name, and a change or removal names the uid it was meant for.
 * - A read by name, and a list, are quorum reads: they see every write that was acknowledged before.
 * - A missing permission is `engine_forbidden`, with the rule that would grant it.
 */

import { isSandlotError } from "@sandlot/contract";
import { z } from "zod";

/** The resources that this backend uses, by their name in the API. */
export type Kind =
  | "pods"
  | "secrets"
  | "configmaps"
  | "persistentvolumeclaims"
  | "events"
  | "networkpolicies"
  | "services"
  | "resourcequotas"
  | "namespaces"
  | "persistentvolumes"
  | "nodes"
  | "runtimeclasses"
  | "storageclasses"
  | "selfsubjectaccessreviews";

/** An object as the API server has it. `spec`, `status` and the like are parsed by those who read them. */
export const apiObjectSchema = z.looseObject({
  metadata: z.looseObject({
    name: z.string(),
    uid: z.string().default(""),
    namespace: z.string().optional(),
    resourceVersion: z.string().default(""),
    creationTimestamp: z.string().nullish(),
    deletionTimestamp: z.string().nullish(),
    labels: z.record(z.string(), z.string()).default({}),
    annotations: z.record(z.string(), z.string()).default({}),
    finalizers: z.array(z.string()).default([]),
  }),
});

export type ApiObject = z.output<typeof apiObjectSchema>;

/** One step of a JSON patch (RFC 6902). A failed `test` refuses the whole patch, with status 422. */
export type PatchStep =
  | { readonly op: "test" | "add" | "replace"; readonly path: string; readonly value: unknown }
  | { readonly op: "remove"; readonly path: string };

export interface Listed {
  readonly items: readonly ApiObject[];
  /** Where a watch may begin. */
  readonly resourceVersion: string;
}

export interface ListQuery {
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

export type WatchEvent =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK"; readonly object: ApiObject }
  /** The stream is of no more use. Status 410: the version is too old, and the caller must list again. */
  | { readonly type: "ERROR"; readonly status: number; readonly problem: string };

export interface Api {
  readonly namespace: string;
  /** The address of the API server, for messages. */
  readonly server: string;
  /** `null`: there is no such object. */
  get(kind: Kind, name: string, signal: AbortSignal): Promise<ApiObject | null>;
  /** All of them, page by page, as of one moment. */
  list(kind: Kind, query: ListQuery, signal: AbortSignal): Promise<Listed>;
  /** An object of that name is an `ApiRefusal` with status 409. */
  create(kind: Kind, body: object, signal: AbortSignal): Promise<ApiObject>;
  /** `null`: there is no such object. A failed `test` is an `ApiRefusal` with status 422. */
  patch(kind: Kind, name: string, steps: readonly PatchStep[], signal: AbortSignal): Promise<ApiObject | null>;
  /** Removes that very object. `null`: there is none, or another has taken its name. */
  remove(kind: Kind, name: string, options: RemoveOptions, signal: AbortSignal): Promise<ApiObject | null>;
  /** Events from a version on. Ends when the server ends it; rejects when the connection breaks. */
  watch(kind: Kind, query: ListQuery & WatchOptions, signal: AbortSignal): AsyncIterable<WatchEvent>;
  close(): void;
}

export interface RemoveOptions {
  readonly uid: string;
  /** Only this version of it. */
  readonly resourceVersion?: string;
  readonly gracePeriodSeconds?: number;
}

export interface WatchOptions {
  readonly resourceVersion: string;
  /** When the server ends the stream cleanly. */
  readonly timeoutSeconds: number;
  /** Silence for this long breaks the connection. */
  readonly silenceMs: number;
}

/** The API server's refusal. */
export class ApiRefusal extends Error {
  readonly status: number;
  /** The reason of the answer, such as `AlreadyExists`, `Invalid` or `Forbidden`. */
  readonly reason: string;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.name = "ApiRefusal";
    this.status = status;
    this.reason = reason;
  }
}

/** Whether a change that ended so may be in effect, or was refused as outdated: only another look tells. */
export function isInDoubt(error: unknown): boolean {
  return isRefusal(error, 409) || isRefusal(error, 422) || isSandlotError(error, "engine_unavailable");
}

export function isRefusal(error: unknown, status: number): error is ApiRefusal {
  return error instanceof ApiRefusal && error.status === status;
}
