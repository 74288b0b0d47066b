/**
 * Puts the daemon and its Node where the account of sandboxes can run them. Their installation may be closed to it,
 * such as a checkout in root's home; then the fleet keeps a copy in its own directory, which that account may pass but
 * not list.
 *
 * Invariants
 * - A copy is named by its content and appears by a rename: it is complete or absent, and never changes.
 */

import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, linkSync, mkdirSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { nativeParts } from "@sandlot/sandboxd";
import type { Account } from "../../../host/accounts/index.ts";
import type { LocalSettings } from "../settings.ts";
import { closedDirectory } from "./open-way.ts";

/** The programs to run: Node, and the daemon's file. Native parts lie beside it. */
export interface OpenDaemon {
  readonly nodePath: string;
  readonly bundle: string;
}

const EVERYBODY_RUNS_IT = 0o005;

/** `parent` is the fleet's own directory. */
export function openDaemon(
  { nodePath, daemon }: Pick<LocalSettings, "nodePath" | "daemon">,
  account: Account,
  parent: string,
): OpenDaemon {
  if ([nodePath, daemon.bundle].every((path) => closedDirectory(path, account) === null))
    return { nodePath, bundle: daemon.bundle };
  const parts = [
    { path: nodePath, name: "sandboxd-runtime", mode: 0o555 },
    { path: daemon.bundle, name: "sandboxd.cjs", mode: 0o444 },
    ...nativeParts(daemon).map((part) => ({ ...part, mode: 0o555 })),
  ];
  const place = join(parent, `daemon-${keyOf(parts.map(({ path }) => path))}`);
  if (!existsSync(place)) fill(place, parts);
  return { nodePath: join(place, "sandboxd-runtime"), bundle: join(place, "sandboxd.cjs") };
}

interface Part {
  readonly path: string;
  readonly name: string;
  readonly mode: number;
}

function fill(place: string, parts: readonly Part[]): void {
  const coming = `${place}.${process.pid}~`;
  try {
    mkdirSync(coming);
    for (const { path, name, mode } of parts) put(path, join(coming, name), mode);
    chmodSync(coming, 0o711);
    renameSync(coming, place);
  } catch (error) {
    rmSync(coming, { recursive: true, force: true });
    // Another process was faster, with the same content.
    if (!existsSync(place)) throw error;
  }
}

/** Node is large, so it is linked where possible. */
function put(from: string, to: string, mode: number): void {
  const mayLink = mode === 0o555 && (statSync(from).mode & EVERYBODY_RUNS_IT) === EVERYBODY_RUNS_IT;
  if (mayLink && linked(from, to)) return;
  copyFileSync(from, to);
  chmodSync(to, mode);
}

/** Not across file systems, and not where the kernel refuses it. */
function linked(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch {
    return false;
  }
}

function keyOf(files: readonly string[]): string {
  const hash = createHash("sha256");
  for (const file of files) {
    const { size, mtimeMs } = statSync(file);
    hash.update(`${file} ${size} ${mtimeMs}\n`);
  }
  return hash.digest("hex").slice(0, 16);
}
