/** What a restore leaves alone: caches, and what the target could not keep. */

import { isDraft } from "../../../world/drafts.ts";

export class Protected {
  readonly #paths: ReadonlySet<string>;
  readonly #above = new Set<string>();

  /** Latin-1. */
  constructor(paths: Iterable<string>) {
    this.#paths = new Set(paths);
    for (const path of this.#paths)
      for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1)) {
        const above = path.slice(0, at);
        if (this.#above.has(above)) break;
        this.#above.add(above);
      }
  }

  has(path: string): boolean {
    return this.#paths.has(path) || isDraft(path.slice(path.lastIndexOf("/") + 1));
  }

  isAbove(path: string): boolean {
    return this.#above.has(path);
  }
}
