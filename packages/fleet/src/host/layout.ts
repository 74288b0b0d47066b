/**
 * The local backend's files below the fleet's directory.
 *
 *   objects/<sandboxId>-<generation>/   object.json   what was requested: labels, place. Written before anything else
 *                                       process.json  the init's process, as soon as there is one
 *                                       pulse         a pipe that only the sandbox holds open for writing
 *                                       status        a pipe in which bubblewrap reports what it has started
 *   s/<12 hex>                          the daemon's socket, outside every mount
 *
 * The egress process of a sandbox has a directory of its own (`egressPath`). For root's fleet it is where the egress
 * account can reach it, which may not be so below the fleet's directory.
 *
 * All paths of an object follow from its name, so left-overs are found from its directory alone.
 */

import { hash } from "node:crypto";
import { lstatSync, mkdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { type FleetId, SandlotError } from "@sandlot/contract";
import { makeDirectories } from "../world/make-directories.ts";

/** `<sandboxId>-<generation>`: never reused. */
export type ObjectName = string;

export interface Layout {
  /** `$SANDLOT_HOME/<fleetId>`. */
  readonly root: string;
  readonly objects: string;
  readonly sockets: string;
  /** The parent of the egress directories; created with the first one. */
  readonly egress: string;
}

const SOCKET_NAME_LENGTH = 12;
/** Less than a socket's own limit: the egress process has sockets in a directory of its own. */
const PATH_MAX_BYTES = 70;
/** A socket has another name until it is ready. */
const UNFINISHED = "~";

export function makeLayout(home: string, fleetId: FleetId, runtimeDirectory: string): Layout {
  makeDirectories(home, 0o700);
  // Links are resolved: one home is one fleet's, and its sockets are in one place.
  const root = join(realpathSync(home), fleetId);
  const objects = join(root, "objects");
  mkdirSync(root, { recursive: true, mode: 0o700 });
  mkdirSync(objects, { recursive: true, mode: 0o700 });
  const sockets = makeSocketDirectory(root, runtimeDirectory);
  const egress = process.getuid?.() === 0 ? `/run/sandlot-${shortHash(root, 16)}` : sockets;
  return { root, objects, sockets, egress };
}

export function objectDirectory(layout: Layout, name: ObjectName): string {
  return join(layout.objects, name);
}

const [PULSE, STATUS] = ["pulse", "status"] as const;
/** The pipes in every object's directory, beside its records. */
export const PIPES: readonly string[] = [PULSE, STATUS];

export function pulsePath(layout: Layout, name: ObjectName): string {
  return join(layout.objects, name, PULSE);
}

export function statusPath(layout: Layout, name: ObjectName): string {
  return join(layout.objects, name, STATUS);
}

export function socketPath(layout: Layout, name: ObjectName): string {
  return join(layout.sockets, shortHash(name, SOCKET_NAME_LENGTH));
}

export function unfinishedSocketPath(layout: Layout, name: ObjectName): string {
  return socketPath(layout, name) + UNFINISHED;
}

/** The private directory of a sandbox without a file system of its own. */
export function privatePath(layout: Layout, name: ObjectName): string {
  return join(layout.root, "private", name);
}

export function egressPath(layout: Layout, name: ObjectName): string {
  return join(layout.egress, `${shortHash(name, SOCKET_NAME_LENGTH)}e`);
}

/** Beside the rest if its path is short enough, otherwise in a private directory with a short name. */
function makeSocketDirectory(root: string, runtimeDirectory: string): string {
  const near = join(root, "s");
  const fits = (directory: string) =>
    Buffer.byteLength(directory) + 1 + SOCKET_NAME_LENGTH + UNFINISHED.length <= PATH_MAX_BYTES;
  const candidates = [
    near,
    join(runtimeDirectory, `sandlot-${shortHash(root, 16)}`),
    `/tmp/sandlot-${shortHash(root, 16)}`,
  ];
  const directory = candidates.find(fits) ?? near;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const { uid, mode } = lstatSync(directory);
  const isDirectory = (mode & 0o170000) === 0o040000;
  if (isDirectory && uid === process.getuid?.() && (mode & 0o077) === 0 && fits(directory)) return directory;
  throw new SandlotError("isolation_unavailable", {
    backend: "local",
    problem: `${directory} cannot hold sockets: it must be a directory that only this account may enter`,
    fix: `remove ${directory}, or set SANDLOT_HOME to a shorter path`,
  });
}

function shortHash(text: string, length: number): string {
  return hash("sha256", text).slice(0, length);
}
