/**
 * Translates paths of this process to paths of the engine. A fleet in a container of the engine, or on another machine
 * that shares its disks, sees the same files by other paths.
 *
 * Invariants
 * - Without configured paths both see the same paths.
 * - With some, a path that none of them covers is refused: on the engine's host it may be another directory.
 */

import { SandlotError } from "@sandlot/contract";
import type { Binding } from "../../../host/mounts/mounts.ts";
import { isWithin } from "../../../world/paths.ts";

/** From a directory of this process to the same directory on the engine's host. */
export type HostPaths = Readonly<Record<string, string>>;

/** The mounts with the engine's paths. Throws `mount_refused`. */
export function outsideBindings(bindings: readonly Binding[], hostPaths: HostPaths): readonly Binding[] {
  return bindings.map((binding) => {
    const from = outsidePath(binding.from, hostPaths);
    if (from !== null) return { ...binding, from };
    const problem = "no entry of docker.hostPaths covers it, so the engine would look for something else by that name";
    throw new SandlotError("mount_refused", { hostPath: binding.from, sandboxPath: binding.to, problem });
  });
}

/** `null` for a path that the engine does not see. */
export function outsidePath(path: string, hostPaths: HostPaths): string | null {
  const entries = Object.entries(hostPaths).map(([inside, outside]) => [plain(inside), plain(outside)] as const);
  if (entries.length === 0) return path;
  const [nearest] = entries.filter(([inside]) => isWithin(path, inside)).sort(([a], [b]) => b.length - a.length);
  if (nearest === undefined) return null;
  const [inside, outside] = nearest;
  const rest = inside === "/" ? path : path.slice(inside.length);
  return outside === "/" ? rest || "/" : outside + rest;
}

function plain(path: string): string {
  return path.replace(/(?<=.)\/+$/, "");
}
