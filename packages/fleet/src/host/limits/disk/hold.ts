/**
 * Makes processes stand still while their files are counted, so that nothing moves meanwhile: frozen where the kernel lets us,
 * otherwise stopped by a signal, which a process inside can undo.
 *
 * Invariants
 * - They go on when they are let go, and also when this process dies: a shell waits for its input to end.
 * - What a signal had stopped already is left alone, then and afterwards.
 * - A hold that something was woken from, or that something new has come into, says so when it ends.
 */

import { spawn } from "node:child_process";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { freeze } from "./freezer.ts";
import { isEnded, LOOK_MS, ROUNDS_MAX, STANDSTILL_LOOKS_MAX, type Standstill, stateOf } from "./standstill.ts";

/** Its input names processes to stop; when that ends, they go on. */
const SCRIPT =
  'held=; while read -r pid; do kill -STOP "$pid" && held="$held $pid"; done; [ -z "$held" ] || kill -CONT $held';

/** `find` names the processes that there are, host pids. `null` where that is not known, and where they do not stay still. */
export async function holdStill(find: () => readonly number[] | null, world: World): Promise<Standstill | null> {
  if (find() === null) return null;
  const found = () => find() ?? [];
  return (await freeze(found, world)) ?? (await stop(found, world));
}

/** For where nothing can be frozen. */
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
  // Something inside wakes them again: what is counted now could still move.
  release();
  return null;
}

/** The daemon is older than everything that it has started. */
export function withoutDaemon(pids: readonly number[], spare: readonly number[]): readonly number[] {
  const others = pids.filter((pid) => !spare.includes(pid)).map((pid) => ({ pid, ticks: stateOf(pid)?.startTicks }));
  const oldest = Math.min(...others.map(({ ticks }) => ticks ?? Number.POSITIVE_INFINITY));
  return others.filter(({ ticks }) => ticks !== undefined && ticks > oldest).map(({ pid }) => pid);
}

function isMoving(pid: number): boolean {
  const state = stateOf(pid)?.state;
  return state !== undefined && !"Tt".includes(state) && !isEnded(pid);
}
