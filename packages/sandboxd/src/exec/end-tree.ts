/**
 * Ends a process tree: TERM, a grace, KILL.
 *
 * A process can start others while it is being ended. So KILL comes in rounds: it stops the processes that it finds (a
 * stopped process starts nothing), looks again, and kills when a look finds no new one.
 */

import { monotonicMs, sleep } from "../clock.ts";

const FIRST_LOOK_MS = 2;
const LOOK_MAX_MS = 50;
/** Even a fork bomb is stopped within a few rounds; this bounds the wait for processes that cannot be killed. */
const KILL_ROUNDS_MAX = 100;

/** `find` returns the living processes of the tree. Resolves with whether all of them are gone. */
export async function endTree(find: () => readonly number[], graceMs: number): Promise<boolean> {
  let pids = find();
  for (const pid of pids) signal(pid, "SIGTERM");
  // A stopped process receives TERM only when it continues.
  for (const pid of pids) signal(pid, "SIGCONT");
  const deadline = monotonicMs() + graceMs;
  for (let waitMs = FIRST_LOOK_MS; pids.length > 0 && monotonicMs() < deadline; pids = find()) {
    await sleep(Math.min(waitMs, Math.max(1, deadline - monotonicMs())));
    waitMs = Math.min(waitMs * 2, LOOK_MAX_MS);
  }
  return pids.length === 0 || killTree(find);
}

/** KILL at once, without TERM. */
export async function killTree(find: () => readonly number[]): Promise<boolean> {
  for (let round = 0; round < KILL_ROUNDS_MAX; round++) {
    const stopped = stopAll(find);
    if (stopped.size === 0) return true;
    for (const pid of stopped) signal(pid, "SIGKILL");
    await sleep(Math.min(FIRST_LOOK_MS + round, LOOK_MAX_MS));
  }
  return find().length === 0;
}

function stopAll(find: () => readonly number[]): Set<number> {
  const stopped = new Set<number>();
  for (let round = 0; round < KILL_ROUNDS_MAX; round++) {
    const fresh = find().filter((pid) => !stopped.has(pid));
    if (fresh.length === 0) break;
    for (const pid of fresh) {
      signal(pid, "SIGSTOP");
      stopped.add(pid);
    }
  }
  return stopped;
}

/** To a pid, or with a negative one to a group. A process that is gone, or belongs to another account, is no error. */
function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
