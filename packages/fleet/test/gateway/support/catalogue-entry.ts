/** An entry of the catalogue: one route with a request that its owner may make. */

import type { CallOptions } from "./stage.ts";

/** The owner's data before each request. Every secret text contains `MARKER`. */
export interface World {
  readonly thread: string;
  readonly leaseId: string;
  readonly execId: string;
  readonly terminalId: string;
  readonly sandboxId: string;
  readonly etag: string;
  /** A key that is no longer needed. */
  readonly keyId: string;
}

export const MARKER = "only-alice-knows";
export const ROOT = "/mnt/user-data";

export interface Entry {
  readonly method: string;
  readonly url: string;
  /** Permitted callers: the owner of the thread, any key, operators, or all. */
  readonly who: "owner" | "any" | "operator" | "open";
  readonly status: number;
  /** Another user's result for the identical request. Their own threads are empty, so some of it is a success. */
  readonly foreign?: number;
  readonly request: (world: World) => readonly [path: string, options?: CallOptions];
  /** The response is a stream that does not end by itself. */
  readonly endless?: boolean;
  /** Invalid bodies, each refused with a 4xx. */
  readonly invalid?: readonly unknown[];
  /** Invalid addresses, each refused with a 4xx. */
  readonly invalidPaths?: (world: World) => readonly string[];
}

export const thread = (world: World, rest: string) => `/v1/threads/${world.thread}${rest}`;
export const form = (name: string) => {
  const data = new FormData();
  data.append("files", new Blob([MARKER]), name);
  return data;
};
export const SHA = "0".repeat(64);
