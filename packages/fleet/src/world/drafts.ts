/**
 * Names of draft files. A name identifies the writing process, so that a killed process's drafts are distinguished from
 * those in progress. A sandbox can forge such a name; it then loses a file of its own.
 */

import { createHash } from "node:crypto";
import { DRAFT_PREFIX } from "@sandlot/contract";
import type { ProcessIdentity, World } from "./world.ts";

export type DraftWorld = Pick<World, "randomHex" | "identity" | "processLiveness" | "wallMs">;

const PATTERN = /^\.sandlot-draft-(?<where>[0-9a-f]{10})-(?<pid>\d{1,10})-(?<startTime>\d{1,20})-[0-9a-f]{16}$/;
/** A writer with unknown liveness (on another machine, or in another container) has a day. */
const UNKNOWN_MAX_AGE_MS = 24 * 3_600_000;

export function draftName(world: DraftWorld): string {
  const { identity } = world;
  return `${DRAFT_PREFIX}${whereOf(identity)}-${identity.pid}-${identity.startTime}-${world.randomHex(8)}`;
}

/** Listings do not show drafts. */
export function isDraft(name: string): boolean {
  return name.startsWith(DRAFT_PREFIX);
}

/** Its writer will not finish it. */
export function isAbandoned(name: string, modifiedAt: number, world: DraftWorld): boolean {
  if (!isDraft(name)) return false;
  const { where, pid, startTime } = PATTERN.exec(name)?.groups ?? {};
  if (where === whereOf(world.identity) && pid !== undefined && startTime !== undefined) {
    const liveness = world.processLiveness({ ...world.identity, pid: Number(pid), startTime });
    if (liveness !== "unknown") return liveness === "dead";
  }
  return world.wallMs() - modifiedAt > UNKNOWN_MAX_AGE_MS;
}

/** Equal for two processes that can check each other's liveness. */
function whereOf({ bootId, pidNamespace }: ProcessIdentity): string {
  return createHash("sha256").update(`${bootId}\0${pidNamespace}`).digest("hex").slice(0, 10);
}
