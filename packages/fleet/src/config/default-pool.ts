/**
 * The blanks that `sandlot serve` keeps: those of `pool`, else one of the default blueprint where the backend can bind it
 * to a thread later.
 */

import type { Backend } from "../backend/backend.ts";
import { DEFAULT_BLUEPRINT } from "./defaults.ts";
import type { Settings } from "./settings.ts";

export interface PoolChoice {
  readonly pool: Readonly<Record<string, number>>;
  /** Why, in a sentence for a person. */
  readonly because: string;
}

/** `configured`: the key `pool` as written. */
export function choosePool(
  configured: Readonly<Record<string, number>> | undefined,
  { limits }: Pick<Settings, "limits">,
  { name, capabilities, lateBindingProblem }: Pick<Backend, "name" | "capabilities" | "lateBindingProblem">,
): PoolChoice {
  if (configured !== undefined) return { pool: configured, because: "The configuration says so, in `pool`." };
  if (!capabilities.has("late-binding")) {
    const why = lateBindingProblem ?? "it declares no late binding";
    return { pool: {}, because: `The ${name} backend cannot give a blank the files of a thread later: ${why}.` };
  }
  const room = limits.maxPerEngine === 0 ? limits.max : Math.min(limits.max, limits.maxPerEngine);
  if (room < 2)
    return { pool: {}, because: "The limits leave room for one sandbox, which a blank would take (`limits`)." };
  const because =
    "`sandlot serve` keeps one of the default blueprint unless `pool` says otherwise; `pool: {}` is none.";
  return { pool: { [DEFAULT_BLUEPRINT]: 1 }, because };
}
