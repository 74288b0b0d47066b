/** Looking up a configured blueprint. */

import { SandlotError } from "@sandlot/contract";
import type { NamedBlueprint, Settings } from "./settings.ts";

export function blueprintNamed(settings: Settings, name: string): NamedBlueprint {
  const blueprint = Object.hasOwn(settings.blueprints, name) ? settings.blueprints[name] : undefined;
  if (blueprint !== undefined) return blueprint;
  throw new SandlotError("blueprint_unknown", { blueprint: name, known: Object.keys(settings.blueprints) });
}
