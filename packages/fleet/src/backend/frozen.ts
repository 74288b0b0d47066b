/** A freeze that belongs to a caller: one that leaves before it has the sandbox frozen leaves it running. */

import { abortable } from "../world/waiting.ts";
import type { Thaw } from "./backend.ts";

export async function frozenFor(signal: AbortSignal, freezing: Promise<Thaw>): Promise<Thaw> {
  try {
    return await abortable(freezing, signal);
  } catch (error) {
    // A freeze that failed has left nothing frozen.
    void freezing.then((thaw) => thaw()).catch(() => {});
    throw error;
  }
}

/** Every call gets the outcome of the first. */
export function once(thaw: Thaw): Thaw {
  let thawing: Promise<boolean> | null = null;
  return () => {
    thawing ??= thaw();
    return thawing;
  };
}
