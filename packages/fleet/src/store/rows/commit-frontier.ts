/**
 * The acknowledged commits of this process that a later commit has to find (`Commit.seen`): those for which no later
 * acknowledged one vouches. A server that lacks one of them has lost writes.
 */

import { COMMITS_KEPT_MS } from "./row-server.ts";

export class CommitFrontier {
  /** When each was acknowledged, on the server's clock. */
  readonly #acknowledged = new Map<string, number>();

  /** For the next commit. */
  seen(now: number): { readonly seen: readonly string[]; readonly seenAt: number } {
    // The server may forget older ones, and then does not check them.
    for (const [id, at] of this.#acknowledged) if (now - at > COMMITS_KEPT_MS / 2) this.#acknowledged.delete(id);
    const seenAt = Math.min(now, ...this.#acknowledged.values());
    return { seen: [...this.#acknowledged.keys()], seenAt };
  }

  /** A commit that named `seen` is there, so all of these are. */
  acknowledged(id: string, seen: readonly string[], now: number): void {
    for (const earlier of seen) this.#acknowledged.delete(earlier);
    this.#acknowledged.set(id, now);
  }

  clear(): void {
    this.#acknowledged.clear();
  }
}
