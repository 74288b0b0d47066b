/** What every part of a remote sandbox shares: where it is, and whether it may still be used. */

import type { Transport } from "../wire/transport.ts";

export interface RemoteThread {
  readonly transport: Transport;
  readonly thread: string;
  /** Throws when this object may not be used any more: its lease was released, or it is of an older generation. */
  check(): void;
}

export function pathOf({ thread }: RemoteThread, rest: string): string {
  return `/v1/threads/${encodeURIComponent(thread)}/${rest}`;
}

/** A path or an id as one part of an address. */
export function segment(text: string): string {
  return encodeURIComponent(text);
}
