/** The checkpoint settings of a blueprint: its own, or the fleet's. */

import type { Settings } from "./settings.ts";

export function checkpointsOf(
  { blueprints, checkpoints }: Pick<Settings, "blueprints" | "checkpoints">,
  blueprint: string,
): Pick<Settings["checkpoints"], "automatic" | "leftOut"> {
  const own = blueprints[blueprint]?.checkpoints;
  return { automatic: own?.automatic ?? checkpoints.automatic, leftOut: own?.leftOut ?? checkpoints.leftOut };
}
