/**
 * Makes host paths reachable for the account that sandboxes run as.
 *
 * Bubblewrap looks its sources up as that account, which may not pass a root fleet's directories: root's home, for
 * example, is closed to others. A path out of its reach is mounted at a reachable place, for the one process that
 * becomes bubblewrap: in its own mount namespace, which ends with it. Nothing is mounted on the host.
 */

import { statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { SandlotError } from "@sandlot/contract";
import type { Account, MountStep } from "../../../host/accounts/index.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";
import { isWithin } from "../../../world/paths.ts";

export interface Staged {
  /** The mounts of the namespace that bubblewrap is started in. Empty when everything can be reached. */
  readonly steps: readonly MountStep[];
  readonly bindings: readonly Binding[];
}

/** Directories that every system has, mostly empty. The stage covers one that contains no source. */
const STAGES = ["/mnt", "/media", "/srv", "/opt"];

/** `root` is the fleet's directory, which is closed: one mount shows each of its directories that is needed. */
export function stage(bindings: readonly Binding[], root: string, account: Account | null): Staged {
  if (account === null) return { steps: [], bindings };
  const hidden = [...new Set(bindings.map(({ from }) => from).filter((path) => !isReachable(path, account)))];
  if (hidden.length === 0) return { steps: [], bindings };
  const sources = [...new Set(hidden.map((path) => topOf(path, root)))];
  const places = STAGES.filter((one) => isDirectory(one) && !bindings.some(({ from }) => isWithin(from, one)));
  const [first] = places;
  if (first === undefined) throw noPlace(hidden);
  const isEnough = sources.length <= places.length && sources.every(isDirectory);
  const targets = isEnough ? places : sources.map((_, at) => `${first}/${at}`);
  const shown = (path: string): string => {
    const at = hidden.includes(path) ? sources.findIndex((source) => isWithin(path, source)) : -1;
    const source = sources[at];
    return source === undefined ? path : `${targets[at]}${path.slice(source.length)}`;
  };
  const shows = sources.map((from, at) => ({ do: "bind", from, to: targets[at] ?? first }) as const);
  return {
    steps: [...(isEnough ? [] : [{ do: "cover", path: first } as const]), ...shows],
    bindings: bindings.map((binding) => ({ ...binding, from: shown(binding.from) })),
  };
}

/** The directory right below the fleet's that contains the path; the path itself where it lies elsewhere. */
function topOf(path: string, root: string): string {
  const [name = ""] = relative(root, path).split("/");
  return path !== root && isWithin(path, root) ? join(root, name) : path;
}

/** Every program here delays every start, so a separate file system is made only where it is needed. */
const SCRIPT = [
  "set -e",
  '[ -z "$1" ] || mount -n -t tmpfs -o mode=0711,size=64k,nosuid,nodev sandlot "$1"',
  "shift",
  'while [ "$1" != -- ]; do [ -e "$2" ] || { if [ -d "$1" ]; then mkdir "$2"; else : >"$2"; fi; }; mount -n --rbind "$1" "$2"; shift 2; done',
  "shift",
  'exec "$@"',
].join("\n");

/**
 * A prefix for bubblewrap's command that takes the steps with programs of the host: where this process cannot take them
 * itself.
 */
export function stagePrefix(steps: readonly MountStep[]): readonly string[] {
  if (steps.length === 0) return [];
  const covered = steps.find((step) => step.do === "cover")?.path ?? "";
  const pairs = steps.flatMap((step) => (step.do === "bind" ? [step.from, step.to] : []));
  return [
    ...["unshare", "--mount", "--propagation", "slave", "--", "/bin/sh", "-c", SCRIPT, "sandlot-stage"],
    ...[covered, ...pairs, "--"],
  ];
}

/** Whether the account may pass every directory of the path. */
function isReachable(path: string, account: Account): boolean {
  for (let directory = dirname(path); ; directory = dirname(directory)) {
    const { uid, gid, mode } = statSync(directory);
    const bit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) return false;
    if (directory === "/") return true;
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

function noPlace(hidden: readonly string[]): SandlotError {
  return new SandlotError("isolation_unavailable", {
    backend: "local",
    problem: `the account of sandboxes cannot reach ${hidden.join(", ")}`,
    fix: "let others pass the directories on the way (chmod o+x), or move the fleet's home to /var/lib/sandlot",
  });
}
