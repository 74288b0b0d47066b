/**
 * Forced ends: of a sandbox that others use (`force`), or of a thread (`purge`). A child announces one before it calls
 * the fleet, so that the engine can tell a requested end from a wrong one.
 *
 * An announcement is valid while its call is running, and afterwards for what existed when it ended: others carry out
 * the request of a caller that was killed, or that got `stopping`.
 */

import type { Peer } from "./peer.ts";

interface Announcement {
  readonly what: "force" | "purge";
  readonly owner: string;
  readonly peer: Peer;
  endedAt: number | null;
}

export class Announcements {
  readonly #all = new Map<number, Announcement>();
  #ids = 0;

  add(what: "force" | "purge", owner: string, peer: Peer): number {
    this.#ids += 1;
    this.#all.set(this.#ids, { what, owner, peer, endedAt: null });
    return this.#ids;
  }

  settled(ticket: number): void {
    const announcement = this.#all.get(ticket);
    if (announcement !== undefined) announcement.endedAt = performance.now();
  }

  gone(peer: Peer): void {
    for (const announcement of this.#all.values()) {
      if (announcement.peer === peer) announcement.endedAt ??= performance.now();
    }
  }

  /** Whether a caller requested the end of something that began at `since`, for one of these threads. */
  allow(what: "force" | "purge", owners: readonly string[], since: number): boolean {
    for (const announcement of this.#all.values()) {
      if (announcement.what !== what || !owners.includes(announcement.owner)) continue;
      if (announcement.endedAt === null || announcement.endedAt >= since) return true;
    }
    return false;
  }
}
