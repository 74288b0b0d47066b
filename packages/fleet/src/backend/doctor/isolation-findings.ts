/** How far sandboxes are kept from their own daemon, and other accounts of the machine from sandboxes. */

import { readFileSync } from "node:fs";
import type { Finding } from "./finding.ts";

/** `problem` is why the daemon is not closed to commands; `null` where it is. */
export function closedDaemonFinding(problem: string | null): Finding {
  const name = "closed daemon";
  const closed = "commands cannot open the memory, environment and descriptors of their sandbox's daemon";
  if (problem === null) return { name, status: "ok", detail: closed };
  const detail = `a command can take over the daemon of its own sandbox: ${problem}`;
  const fix = "set fs.suid_dumpable to 0 or 2, and run the fleet on a Linux with the GNU C library";
  return { name, status: "warn", detail, fix };
}

/** Command lines are in `/proc`, which every account of a machine can read by default. */
export function processListFinding(mounts: string = readFileSync("/proc/self/mounts", "utf8")): Finding {
  const name = "process list";
  const options = mounts.match(/^\S+ \/proc proc (\S+)/m)?.[1]?.split(",") ?? [];
  const hidden = options.some((option) =>
    ["hidepid=1", "hidepid=2", "hidepid=noaccess", "hidepid=invisible"].includes(option),
  );
  if (hidden)
    return { name, status: "ok", detail: "other accounts of this machine cannot read command lines (hidepid)" };
  const detail = "other accounts of this machine can read the command lines of sandboxes (ps)";
  return { name, status: "warn", detail, fix: "mount -o remount,hidepid=2 /proc, and the same in /etc/fstab" };
}

/** The daemon's files and the workspace belong to accounts of the host, so containers keep those ids. */
export function remapFinding(remapsUsers: boolean): readonly Finding[] {
  if (!remapsUsers) return [];
  const detail =
    "the engine maps users (userns-remap), and sandboxes opt out of it: their account is one of the host's";
  const fix =
    "rely on docker.uid, which owns nothing on the host, or use the local backend, whose sandboxes have user namespaces";
  return [{ name: "user mapping", status: "warn", detail, fix }];
}
