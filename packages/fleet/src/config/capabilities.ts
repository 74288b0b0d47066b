/**
 * The capabilities that a blueprint needs of its backend. An undeclared one is a named error when the fleet opens,
 * never a setting that is silently without effect.
 */

import { SandlotError } from "@sandlot/contract";
import type { Backend, Capability } from "../backend/backend.ts";
import type { Blueprint } from "../backend/blueprint.ts";
import type { NamedBlueprint } from "./settings.ts";

/** In the order in which a missing one is reported. */
const NEEDED_BY: readonly (readonly [Capability, (blueprint: Blueprint) => boolean])[] = [
  ["image", ({ image }) => image !== undefined],
  ["runtime", ({ runtime }) => runtime !== undefined],
  ["limits", ({ limits }) => Object.values(limits).some((limit) => limit !== undefined)],
  ["mounts", ({ mounts }) => mounts.length > 0],
  ["environments", ({ setup }) => setup !== undefined],
  ["network", ({ network }) => network.mode !== "none"],
];

/** The capabilities that this blueprint requires. */
export function neededCapabilities(blueprint: Blueprint): readonly Capability[] {
  return NEEDED_BY.filter(([, isNeeded]) => isNeeded(blueprint)).map(([capability]) => capability);
}

/** Throws `capability_missing` when the backend lacks a required capability. */
export function requireCapabilities(
  { name, blueprint }: Pick<NamedBlueprint, "name" | "blueprint">,
  backend: string,
  capabilities: ReadonlySet<Capability>,
  limits?: Backend["limits"],
): void {
  const missing = neededCapabilities(blueprint).find((capability) => !capabilities.has(capability));
  const unlimited = Object.entries(blueprint.limits)
    .filter(([limit, value]) => value !== undefined && limits?.has(limit as keyof Blueprint["limits"]) === false)
    .map(([limit]) => `limits.${limit}`)[0];
  const capability = missing ?? unlimited;
  if (capability === undefined) return;
  throw new SandlotError("capability_missing", { backend, capability, neededBy: `blueprint ${name}` });
}
