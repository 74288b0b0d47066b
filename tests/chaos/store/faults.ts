/**
 * The faults of a store's chaos. Each lasts for a while and then heals.
 *
 * A fault of links harms one participant's, or all: an instance that is cut off alone is judged dead by the others, and
 * instances that are cut off together must judge nobody.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { timesWith } from "../../crash/settings.ts";
import type { Random } from "../../simulation/schedule/random.ts";
import type { ChaosDatabase } from "./chaos-database.ts";
import type { Link, LinkMode } from "./link.ts";

export const FAULTS = [
  "cut one",
  "cut all",
  "delayed 50 ms",
  "half-open one",
  "half-open all",
  "stalled one",
  "stalled all",
  "reset in mid-answer",
  "server killed",
  "server stopped",
  "failover",
] as const;
export type Fault = (typeof FAULTS)[number];

const DELAY_MS = 50;
const DELAYED_FOR_MS = 1_500;
const RESETS = 6;
const RESET_WITHIN_MS = 400;
const LAG_MAX_MS = 1_000;
const DOWN_MAX_MS = 500;

export interface Faults {
  readonly database: ChaosDatabase;
  /** Those that can be harmed. */
  links(): readonly Link[];
  readonly random: Random;
}

/** Resolves when the fault is over and everything is as before it. */
export async function inflict(fault: Fault, { database, links, random }: Faults): Promise<void> {
  const { server } = database;
  const { sessionLifetimeMs } = timesWith(database.address);
  // Some participants reach the database another way.
  const all = links().filter(({ connectionCount }) => connectionCount > 0);
  const chosen = fault.endsWith("one") ? [random.pick(all)] : all;
  const mode = modeOf(fault, random);
  if (mode !== null) {
    for (const link of chosen) link.set(mode);
    await sleep(fault === "delayed 50 ms" ? DELAYED_FOR_MS : lengthOf(random, sessionLifetimeMs));
    for (const link of chosen) link.heal();
  } else if (fault === "reset in mid-answer") {
    for (let left = RESETS; left > 0; left -= 1)
      await Promise.all(chosen.map((link) => link.resetNextAnswer(RESET_WITHIN_MS)));
  } else if (fault === "server killed") {
    await server.kill();
    await sleep(random.between(0, DOWN_MAX_MS));
    await server.restart();
  } else if (fault === "server stopped") {
    server.stop();
    await sleep(Math.min(lengthOf(random, sessionLifetimeMs), database.stopMaxMs ?? Number.POSITIVE_INFINITY));
    server.resume();
  } else {
    await database.failOver(random.between(0, LAG_MAX_MS));
    for (const link of links()) link.moveTo(database.upstream);
  }
}

function modeOf(fault: Fault, random: Random): LinkMode | null {
  const direction = random.chance(0.5) ? "both" : "answers";
  if (fault.startsWith("cut")) return { kind: "cut" };
  if (fault.startsWith("delayed")) return { kind: "delayed", ms: DELAY_MS };
  if (fault.startsWith("half-open")) return { kind: "half-open", direction };
  // Late answers say nothing; requests that arrive late are what `notAfter` is for.
  if (fault.startsWith("stalled")) return { kind: "stalled", direction: "both" };
  return null;
}

/** Half of them shorter than a step's deadline, half longer than a session's life. */
function lengthOf(random: Random, sessionLifetimeMs: number): number {
  return random.chance(0.5)
    ? random.between(100, 500)
    : random.between(sessionLifetimeMs + 100, sessionLifetimeMs + 1_500);
}
