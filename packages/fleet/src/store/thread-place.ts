/** Where a thread lives: on an engine that the asking instance reaches, or elsewhere. */

import type { ThreadId, UserId } from "@sandlot/contract";
import type { StoreMeta } from "./store.ts";

export interface LocateRequest {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly engines: readonly string[];
}

export interface ThreadPlace extends StoreMeta {
  /** `null`: the thread is on one of these engines, or may begin on one. */
  readonly elsewhere: Elsewhere | null;
  /** It is on one of these engines, with or without a sandbox: until it is purged it begins on no other. */
  readonly isSettled: boolean;
}

/** A thread's engine that the caller does not reach. */
export interface Elsewhere {
  readonly kind: "elsewhere";
  readonly engine: string;
  /** The addresses of the gateways that reach it. */
  readonly gateways: readonly string[];
  /** Whether any session reaches it. */
  readonly isReachable: boolean;
}
