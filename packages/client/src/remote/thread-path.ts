/** Shared by all parts of a remote sandbox: its path, and whether it is still usable. */

import type { Transport } from "../wire/transport.ts";

export interface RemoteThread {
  readonly transport: Transport;
  readonly thread: string;
  /** Throws when this object is no longer usable: its lease was released, or it is of an older generation. */
  check(): void;
}

export function pathOf({ thread }: RemoteThread, rest: string): string {
  return `/v1/threads/${encodeURIComponent(thread)}/${rest}`;
}

/** A path or an id as one segment of a URL. */
export function segment(text: string): string {
  return encodeURIComponent(text);
}
