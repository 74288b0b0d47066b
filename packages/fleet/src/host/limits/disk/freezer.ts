/**
 * Freezes processes in a control group created for it, below their own group. Unlike a stop signal, nothing inside can
 * undo it. Version 2 supports this wherever it is mounted, also without controllers; version 1 has a separate tree for
 * it.
 *
 * Invariants
 * - The group is frozen before the first process enters it, so each process stands still from then on and starts
 *   nothing.
 * - Processes return to their group on release, and also when this process dies: a shell waits for its input to end.
 * - Processes already in such a group, from another or a killed process of the fleet, are taken out of it; the former
 *   holder learns this on release.
 */

import { spawn } from "node:child_process";
import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { read, readCounter, readPids, write } from "../group-files.ts";
import { findHierarchies, type Hierarchies } from "../hierarchy.ts";
import { isEnded, LOOK_MS, ROUNDS_MAX, STANDSTILL_LOOKS_MAX, type Standstill } from "./standstill.ts";

const HELD = "sandlot-held-";
/** Empties the frozen group, so that it gets no new processes; then thaws it, in case one did not move. */
const SCRIPT = `read -r _; n=0
until rmdir "$1" || [ $n -gt 100 ]; do
  for pid in $(/bin/cat "$1/cgroup.procs"); do echo "$pid" > "$2/cgroup.procs"; done
  [ $n -lt 2 ] || echo "$4" > "$1/$3"
  n=$((n + 1))
done`;

interface Freezer {
  /** The processes' own group. */
  readonly parent: string;
  readonly file: string;
  readonly words: { readonly freeze: string; readonly thaw: string };
  isFrozen(directory: string): boolean;
}

/** `find` returns the current processes as host pids. `null` where freezing is unsupported. */
export async function freeze(
  find: () => readonly number[],
  world: World,
  hierarchies: Pick<Hierarchies, "unified" | "freezer"> = findHierarchies(),
): Promise<Standstill | null> {
  const freezer = freezerOf(
    find().find((pid) => !isEnded(pid)),
    hierarchies,
  );
  if (freezer === null) return null;
  const directory = join(freezer.parent, `${HELD}${world.randomHex(8)}`);
  const { file, words } = freezer;
  const holder = spawn("/bin/sh", ["-c", SCRIPT, "sh", directory, freezer.parent, file, words.thaw], {
    ...{ stdio: ["pipe", "ignore", "ignore"], env: {}, cwd: "/", detached: true },
  });
  holder.once("error", () => {});
  holder.stdin?.on("error", () => {});
  const letGo = () => void holder.stdin?.end();
  const outside = () => {
    const inside = new Set(readPids(directory));
    return find().filter((pid) => !inside.has(pid) && !isEnded(pid));
  };
  const isStill = () => outside().length === 0 && freezer.isFrozen(directory);
  try {
    mkdirSync(directory);
    write(directory, file, words.freeze);
  } catch {
    letGo();
    return null;
  }
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const fresh = outside();
    if (fresh.length === 0) break;
    for (const pid of fresh) tryMove(directory, pid);
  }
  for (let look = 0; look < STANDSTILL_LOOKS_MAX && !isStill(); look += 1) await sleep(world, LOOK_MS);
  if (!isStill()) {
    letGo();
    return null;
  }
  const release = () => {
    const stood = isStill();
    letGo();
    return stood;
  };
  return { pids: readPids(directory), release };
}

/** Whether this process may make a group below its own that freezes. Sandboxes are in its own group, or below it. */
export function canFreeze(
  world: Pick<World, "randomHex">,
  hierarchies: Pick<Hierarchies, "unified" | "freezer"> = findHierarchies(),
): boolean {
  const freezer = freezerOf(process.pid, hierarchies);
  if (freezer === null) return false;
  const directory = join(freezer.parent, `${HELD}${world.randomHex(8)}`);
  try {
    mkdirSync(directory);
  } catch {
    return false;
  }
  try {
    return read(directory, freezer.file) !== null;
  } finally {
    rmdirSync(directory);
  }
}

/** By the group of one of them: all processes of a sandbox are in the same group, or below it. */
function freezerOf(
  pid: number | undefined,
  { unified, freezer }: Pick<Hierarchies, "unified" | "freezer">,
): Freezer | null {
  if (pid === undefined) return null;
  const groups = read(`/proc/${pid}`, "cgroup") ?? "";
  const parentIn = (mountPoint: string | null, line: RegExp): string | null => {
    const path = line.exec(groups)?.[1];
    if (mountPoint === null || path === undefined) return null;
    if (!readPids(join(mountPoint, path)).includes(pid)) return null;
    return join(
      mountPoint,
      path
        .split("/")
        .filter((name) => !name.startsWith(HELD))
        .join("/"),
    );
  };
  const two = parentIn(unified, /^0::(\/.*)$/m);
  if (two !== null)
    return {
      ...{ parent: two, file: "cgroup.freeze", words: { freeze: "1", thaw: "0" } },
      isFrozen: (directory) => readCounter(directory, "cgroup.events", "frozen") === 1,
    };
  const one = parentIn(freezer, /^\d+:(?:[^:\n]*,)?freezer(?:,[^:\n]*)?:(\/.*)$/m);
  if (one === null) return null;
  return {
    ...{ parent: one, file: "freezer.state", words: { freeze: "FROZEN", thaw: "THAWED" } },
    isFrozen: (directory) => read(directory, "freezer.state")?.trim() === "FROZEN",
  };
}

/** A process that ended meanwhile counts as still. */
function tryMove(directory: string, pid: number): void {
  try {
    write(directory, "cgroup.procs", pid);
  } catch {}
}
