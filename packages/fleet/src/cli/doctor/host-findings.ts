/**
 * What every backend needs of the host: a Node, a home with room, file watches, a clock.
 */

import { existsSync, mkdtempSync, readFileSync, rmdirSync, statfsSync } from "node:fs";
import { dirname, join } from "node:path";
import { isoTime } from "@sandlot/contract";
import type { Finding } from "../../backend/doctor/finding.ts";
import { errnoOf } from "../../world/disk-trouble.ts";

/** Below this a few builds inside sandboxes fill the disk. */
const FREE_BYTES_WANTED = 2 * 1024 ** 3;
/** Below this there is no room for the store and its log. */
const FREE_BYTES_NEEDED = 16 * 1024 ** 2;
const FREE_INODES_WANTED = 50_000;
/** Each sandbox that watches files takes one instance; editors and bundlers take more. */
const INOTIFY_INSTANCES_WANTED = 512;
const INOTIFY_WATCHES_WANTED = 65_536;
/** A clock before this has not been set; generations begin at the present time. */
const CLOCK_FLOOR_MS = Date.UTC(2026, 0, 1);

/** `store` is what the store says of itself. */
export function hostFindings(home: string, store: readonly Finding[]): readonly Finding[] {
  const findings: readonly (Finding | null)[] = [
    { name: "node", status: "ok", detail: `${process.version} on ${process.platform} ${process.arch}` },
    ...store,
    homeFinding(home),
    diskFinding(home),
    inotifyFinding("max_user_instances", INOTIFY_INSTANCES_WANTED),
    inotifyFinding("max_user_watches", INOTIFY_WATCHES_WANTED),
    clockFinding(),
  ];
  return findings.filter((finding) => finding !== null);
}

/** Tried: access rights let root write everywhere, but not in /proc or on a read-only disk. */
function homeFinding(home: string): Finding {
  const existing = nearestExisting(home);
  try {
    rmdirSync(mkdtempSync(join(existing, ".sandlot-doctor-")));
    return { name: "home", status: "ok", detail: existing === home ? home : `${home} (will be made)` };
  } catch (error) {
    const fix = "set SANDLOT_HOME to a directory that this account can write";
    return { name: "home", status: "fail", detail: `${existing} cannot be written (${errnoOf(error) ?? error})`, fix };
  }
}

function diskFinding(home: string): Finding {
  const { bavail, bsize, ffree, files } = statfsSync(nearestExisting(home));
  const freeBytes = bavail * bsize;
  const detail =
    freeBytes < 1024 ** 3
      ? `${(freeBytes / 1024 ** 2).toFixed(1)} MiB free`
      : `${(freeBytes / 1024 ** 3).toFixed(1)} GiB free`;
  const fix = "free space, or set SANDLOT_HOME to a file system that has more";
  if (freeBytes < FREE_BYTES_NEEDED) return { name: "disk", status: "fail", detail, fix };
  if (freeBytes < FREE_BYTES_WANTED) return { name: "disk", status: "warn", detail, fix };
  // Some file systems have no fixed number of inodes and report 0.
  if (files > 0 && ffree < FREE_INODES_WANTED) {
    return { name: "disk", status: "warn", detail: `${detail}, but only ${ffree} more files`, fix };
  }
  return { name: "disk", status: "ok", detail };
}

function inotifyFinding(key: string, wanted: number): Finding | null {
  const path = `/proc/sys/fs/inotify/${key}`;
  if (!existsSync(path)) return null;
  const value = Number(readFileSync(path, "utf8"));
  const name = `inotify ${key.replace("max_user_", "")}`;
  if (value >= wanted) return { name, status: "ok", detail: String(value) };
  const detail = `${value}: watching files in many sandboxes will fail (${wanted} is a good number)`;
  return { name, status: "warn", detail, fix: `sysctl fs.inotify.${key}=${wanted}` };
}

function clockFinding(): Finding {
  const now = Date.now();
  if (now >= CLOCK_FLOOR_MS) return { name: "clock", status: "ok", detail: isoTime(now) };
  const detail = `the clock says ${isoTime(now)}, which has passed long ago`;
  return { name: "clock", status: "fail", detail, fix: "set the clock, for example with timedatectl set-ntp true" };
}

export function nearestExisting(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : nearestExisting(dirname(path));
}
