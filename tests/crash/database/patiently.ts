/** Opens a store, or what needs one, as soon as its database answers: one that is down refuses rightly. */

import { setTimeout as sleep } from "node:timers/promises";
import { isSandlotError } from "@sandlot/contract";

/** Longer than any of main's faults, with the restart of a server. */
const OPEN_MAX_MS = 30_000;
const AGAIN_MS = 100;

export async function patiently<T>(open: () => Promise<T>, log: (text: string) => void = () => {}): Promise<T> {
  const until = performance.now() + OPEN_MAX_MS;
  for (;;) {
    try {
      return await open();
    } catch (error) {
      if (!isSandlotError(error) || error.code !== "store_unavailable" || performance.now() > until) throw error;
      log(`cannot open yet: ${error.message}`);
      await sleep(AGAIN_MS);
    }
  }
}
