/**
 * Holds processes while their files are counted: frozen where the kernel supports it, otherwise stopped by a signal,
 * which a process inside can undo.
 *
 * Invariants
 * - They continue on release, and also when this process dies: a shell waits for its input to end.
 * - Processes that a signal had already stopped stay stopped.
 * - `release` reports when a process was woken, or when a new one appeared.
 */

import { spawn } from "node:child_process";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { freeze } from "./freezer.ts";
import { isEnded, LOOK_MS, ROUNDS_MAX, STANDSTILL_LOOKS_MAX, type Standstill, stateOf } from "./standstill.ts";

/** Its input names processes to stop; when the input ends, they continue. */
const SCRIPT =
  'held=; while read -r pid; do kill -STOP "$pid" && held="$held $pid"; done; [ -z "$held" ] || kill -CONT $held';

/** `find` returns the current processes as host pids. `null` where they are unknown, or do not stay still. */
export async function holdStill(find: () => readonly number[] | null, world: World): Promise<Standstill | null> {
  if (find() === null) return null;
  const found = () => find() ?? [];
  return (await freeze(found, world)) ?? (await stop(found, world));
}

/** For where freezing is unsupported. */
export async function stop(find: () => readonly number[], world: World): Promise<Standstill | null> {
  const holder = spawn("/bin/sh", ["-c", SCRIPT], {
    stdio: ["pipe", "ignore", "ignore"],
    env: {},
    cwd: "/",
    detached: true,
  });
  holder.once("error", () => {});
  holder.stdin.on("error", () => {});
  const seen = new Set<number>();
  const held: number[] = [];
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const fresh = find().filter((pid) => !seen.has(pid));
    if (fresh.length === 0) break;
    for (const pid of fresh) {
      seen.add(pid);
      if (stateOf(pid)?.state === "T") continue;
      held.push(pid);
      holder.stdin.write(`${pid}\n`);
    }
    for (let look = 0; look < STANDSTILL_LOOKS_MAX && held.some(isMoving); look += 1) await sleep(world, LOOK_MS);
  }
  const release = () => {
    const stood = !find().some(isMoving);
    holder.stdin.end();
    return stood;
  };
  if (!held.some(isMoving)) return { pids: [...seen], release };
  // Something inside wakes them again: files could still move.
  release();
  return null;
}

/** The daemon is older than everything it has started. */
export function withoutDaemon(pids: readonly number[], spare: readonly number[]): readonly number[] {
  const others = pids.filter((pid) => !spare.includes(pid)).map((pid) => ({ pid, ticks: stateOf(pid)?.startTicks }));
  const oldest = Math.min(...others.map(({ ticks }) => ticks ?? Number.POSITIVE_INFINITY));
  return others.filter(({ ticks }) => ticks !== undefined && ticks > oldest).map(({ pid }) => pid);
}

function isMoving(pid: number): boolean {
  const state = stateOf(pid)?.state;
  return state !== undefined && !"Tt".includes(state) && !isEnded(pid);
}
