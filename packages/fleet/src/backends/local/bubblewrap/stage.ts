/**
 * Making host paths reachable for the account that sandboxes run as.
 *
 * Bubblewrap looks its sources up as that account, which may not pass a root fleet's directories: root's home, for
 * example, is closed to others. What cannot be reached is shown, for the one process that becomes bubblewrap, at a place
 * that can: in a mount namespace of its own, which ends with it. Nothing is mounted on the host.
 */

import { statSync } from "node:fs";
import { dirname } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { type Binding, isWithin } from "../mounts.ts";
import type { Account } from "../settings.ts";

export interface Staged {
  /** Put before what runs bubblewrap; needs root. Empty when everything can be reached. */
  readonly prefix: readonly string[];
  readonly bindings: readonly Binding[];
}

/** Directories that every system has, mostly empty. One that no source lies in is covered. */
const STAGES = ["/mnt", "/media", "/srv", "/opt"];

const SCRIPT = [
  "set -e",
  "stage=$1",
  "shift",
  'mount -n -t tmpfs -o mode=0711,size=64k,nosuid,nodev sandlot "$stage"',
  'while [ "$1" != -- ]; do if [ -d "$1" ]; then mkdir "$stage/$2"; else : >"$stage/$2"; fi; mount -n --rbind "$1" "$stage/$2"; shift 2; done',
  "shift",
  'exec "$@"',
].join("\n");

/** `root` is the fleet's directory: one mount shows all that lies in it. */
export function stage(bindings: readonly Binding[], root: string, account: Account | null): Staged {
  if (account === null) return { prefix: [], bindings };
  const hidden = [...new Set(bindings.map(({ from }) => from).filter((path) => !isReachable(path, account)))];
  if (hidden.length === 0) return { prefix: [], bindings };
  const sources = [...new Set(hidden.map((path) => (isWithin(path, root) ? root : path)))];
  const place = STAGES.find((one) => isDirectory(one) && !bindings.some(({ from }) => isWithin(from, one)));
  if (place === undefined) throw noPlace(hidden);
  const shown = (path: string): string => {
    const at = hidden.includes(path) ? sources.findIndex((source) => isWithin(path, source)) : -1;
    const source = sources[at];
    return source === undefined ? path : `${place}/${at}${path.slice(source.length)}`;
  };
  return {
    prefix: [
      ...["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", SCRIPT, "sandlot-stage", place],
      ...[...sources.flatMap((source, at) => [source, String(at)]), "--"],
    ],
    bindings: bindings.map((binding) => ({ ...binding, from: shown(binding.from) })),
  };
}

/** Whether the account may pass every directory on the way. */
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
