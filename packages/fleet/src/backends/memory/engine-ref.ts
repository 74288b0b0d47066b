/**
 * References of the engine in memory. They name the process whose memory a sandbox is in, so that a fleet in another
 * process, which shares the store but not the memory, can tell "not here" from "gone".
 */

import type { EngineRef } from "@sandlot/contract";
import type { Liveness, ProcessIdentity, World } from "../../world/world.ts";

const SEPARATOR = "/";

export function newRef(world: World): EngineRef {
  const { bootId, pidNamespace, pid, startTime } = world.identity;
  return [bootId, pidNamespace, pid, startTime, world.randomHex(16)].join(SEPARATOR) as EngineRef;
}

/** The liveness of an object outside this memory: dead with its process, otherwise unknown. */
export function livenessElsewhere(ref: EngineRef, world: World): Liveness {
  const identity = identityOf(ref);
  if (identity === null || isSame(identity, world.identity)) return "dead";
  return world.processLiveness(identity) === "dead" ? "dead" : "unknown";
}

function identityOf(ref: EngineRef): ProcessIdentity | null {
  const [bootId, pidNamespace, pid, startTime, random] = ref.split(SEPARATOR);
  if (bootId === undefined || pidNamespace === undefined || startTime === undefined || random === undefined)
    return null;
  return { bootId, pidNamespace, pid: Number(pid), startTime };
}

function isSame(a: ProcessIdentity, b: ProcessIdentity): boolean {
  return a.bootId === b.bootId && a.pidNamespace === b.pidNamespace && a.pid === b.pid && a.startTime === b.startTime;
}
