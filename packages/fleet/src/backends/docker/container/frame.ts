/**
 * The files that all sandboxes of a kind share: the frame of `/mnt`, and the account files.
 *
 * A thread's sandbox mounts the frame read-only at `/mnt` and its workspace over a directory in it; a blank mounts its
 * slot instead. Either way `/mnt/acp-workspace` is a link into the workspace.
 */

import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Account } from "../../../host/accounts/index.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";
import type { MountPoint } from "../../../host/workspaces/slots.ts";
import { INNER_ACCOUNT } from "../../../sandboxd/inner-account.ts";

/** The directory to mount at `/mnt`: one for all sandboxes with the same mounts. */
export function makeFrame(parent: string, points: readonly MountPoint[]): string {
  const text = points
    .map(({ path, kind }) => `${kind} ${path}`)
    .sort()
    .join("\n");
  return once(parent, "mnt", text, (directory) => {
    mkdirSync(join(directory, "user-data"));
    if (!points.some(({ path }) => path === "acp-workspace"))
      symlinkSync("user-data/.acp-workspace", join(directory, "acp-workspace"));
    for (const { path, kind } of points) {
      const place = join(directory, path);
      mkdirSync(kind === "directory" ? place : dirname(place), { recursive: true });
      if (kind === "file") writeFileSync(place, "");
    }
  });
}

/**
 * The accounts that programs look up by number. A process inside cannot change its account, so no other entry is
 * needed.
 */
export function makeAccounts(parent: string, { uid, gid }: Account, home: string): readonly Binding[] {
  const { name } = INNER_ACCOUNT;
  const root = uid === 0 ? "" : "root:x:0:0:root:/root:/usr/sbin/nologin\n";
  const passwd = `${root}${name}:x:${uid}:${gid}:Sandbox:${home}:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n`;
  const group = `${gid === 0 ? "" : "root:x:0:\n"}${name}:x:${gid}:\nnogroup:x:65534:\n`;
  const directory = once(parent, "etc", passwd + group, (coming) => {
    writeFileSync(join(coming, "passwd"), passwd, { mode: 0o644 });
    writeFileSync(join(coming, "group"), group, { mode: 0o644 });
  });
  return ["passwd", "group"].map((file) => ({ from: join(directory, file), to: `/etc/${file}`, readOnly: true }));
}

/** A directory named by its content, which appears complete. */
function once(parent: string, kind: string, text: string, fill: (directory: string) => void): string {
  const path = join(parent, `${kind}-${createHash("sha256").update(text).digest("hex").slice(0, 16)}`);
  if (existsSync(path)) return path;
  mkdirSync(parent, { recursive: true, mode: 0o711 });
  const coming = `${path}.${process.pid}~`;
  rmSync(coming, { recursive: true, force: true });
  mkdirSync(coming);
  chmodSync(coming, 0o755);
  fill(coming);
  try {
    renameSync(coming, path);
  } catch (error) {
    rmSync(coming, { recursive: true, force: true });
    // Another process was faster, with the same content.
    if (!existsSync(path)) throw error;
  }
  return path;
}
