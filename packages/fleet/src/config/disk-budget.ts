/** What the workspaces of a blueprint may take on their disk. */

import type { Budget } from "../backend/checkpoints.ts";
import type { Settings } from "./settings.ts";

/** `null`: unlimited. An unknown blueprint has no limit that could be known. */
export function diskBudget(blueprints: Settings["blueprints"], name: string): Budget | null {
  const { diskBytes, filesMax } = blueprints[name]?.blueprint.limits ?? {};
  if (diskBytes === undefined && filesMax === undefined) return null;
  return { maxBytes: diskBytes ?? Number.POSITIVE_INFINITY, maxFiles: filesMax ?? Number.POSITIVE_INFINITY };
}
