/**
 * The engines of a run. Most runs have one, which every host reaches. The others have two or three, and a shared store:
 * a host reaches one engine, and sometimes two hosts share one.
 */

import { FOUND } from "../found-seeds.ts";
import { Random } from "../schedule/random.ts";

export interface DrawnEngines {
  readonly isShared: boolean;
  readonly names: readonly [string, ...string[]];
  /** The engine of each host, by the order of hosts; `null`: the only one. */
  readonly ofHosts: readonly string[] | null;
  /** For the rest of a run with several engines. */
  readonly random: Random;
}

/** The share of runs with several engines. */
const SHARE = 0.35;
const NAMED = new Set(FOUND.map(([seed]) => seed));

export function drawEngines(seed: number): DrawnEngines {
  const random = new Random(seed, 9);
  if (NAMED.has(seed) || !random.chance(SHARE)) return { isShared: false, names: ["engine"], ofHosts: null, random };
  const isThree = random.chance(0.4);
  const names: [string, ...string[]] = isThree ? ["e1", "e2", "e3"] : ["e1", "e2"];
  return { isShared: true, names, ofHosts: ["e1", "e2", isThree ? "e3" : random.pick(names)], random };
}
