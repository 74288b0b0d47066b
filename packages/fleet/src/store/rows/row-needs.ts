/** What a step lacks: the store fetches it, and runs the step again. */

import type { RowKey } from "./row-server.ts";

/** The step needs rows that were never read. */
export class RowsNeeded extends Error {
  readonly keys: readonly RowKey[];

  constructor(keys: readonly RowKey[]) {
    super("rows to be read first");
    this.keys = keys;
  }
}

/** The step searches in all rows, and the mirror may be old. */
export class MirrorNeeded extends Error {
  constructor() {
    super("rows to be scanned first");
  }
}
