/**
 * Makes processes stand still while their files are counted, so that nothing moves meanwhile.
 *
 * Invariants
 * - They go on when they are let go, and also when this process dies: a shell stops them and waits for its input to end.
 * - What stood still already is left alone, then and afterwards.
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { sleep } from "../../../../world/waiting.ts";
import type { World } from "../../../../world/world.ts";

/** New processes of one that was not stopped yet come in the next round. */
const ROUNDS_MAX = 20;
const STANDSTILL_LOOKS_MAX = 50;
const LOOK_MS = 4;
/** Its input names processes to stop; when that ends, they go on. */
const SCRIPT =
  'held=; while read -r pid; do kill -STOP "$pid" && held="$held $pid"; done; [ -z "$held" ] || kill -CONT $held';

interface ProcessState {
  readonly state: string;
  readonly startTicks: number;
}

/** `find` names the processes that there are, host pids. `null` where that is not known, and where they do not stay still. */
export async function holdStill(
  find: () => readonly number[] | null,
  world: World,
): Promise<{ release(): void } | null> {
  if (find() === null) return null;
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
    const fresh = (find() ?? []).filter((pid) => !seen.has(pid));
    if (fresh.length === 0) break;
    for (const pid of fresh) {
      seen.add(pid);
      if (stateOf(pid)?.state === "T") continue;
      held.push(pid);
      holder.stdin.write(`${pid}\n`);
    }
    for (let look = 0; look < STANDSTILL_LOOKS_MAX && held.some(isMoving); look += 1) await sleep(world, LOOK_MS);
  }
  const release = () => void holder.stdin.end();
  if (!held.some(isMoving)) return { release };
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
  return state !== undefined && !"TtZX".includes(state);
}

function stateOf(pid: number): ProcessState | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return { state: fields[0] ?? "", startTicks: Number(fields[19]) };
  } catch {
    return null;
  }
}
