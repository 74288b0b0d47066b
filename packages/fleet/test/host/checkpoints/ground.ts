/** A fleet's directory with workspaces and their checkpoints, for tests. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Generation, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import type { LongCall, Taken, TakeOptions, WorkspaceOwner } from "../../../src/backend/checkpoints.ts";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { DiskCheckpoints } from "../../../src/host/checkpoints/disk-checkpoints.ts";
import type { CheckpointOptions } from "../../../src/host/checkpoints/options.ts";
import { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const world = systemWorld();
/** Root's fleet has an account for its sandboxes; an ordinary user's runs them as itself. */
const ACCOUNT = process.getuid?.() === 0 ? { uid: 64_321, gid: 64_321 } : null;

export const never: LongCall = { signal: new AbortController().signal };

export class Ground implements AsyncDisposable {
  readonly root: string;
  readonly workspaces: DiskWorkspaces;
  readonly checkpoints: DiskCheckpoints;
  #generation = 1;

  constructor(options: Partial<CheckpointOptions> = {}, root = mkdtempSync(join(tmpdir(), "sandlot-checkpoints-"))) {
    this.root = root;
    this.workspaces = new DiskWorkspaces({ root, account: ACCOUNT, world });
    const settings = { freeBytesMin: 0, ...options };
    this.checkpoints = new DiskCheckpoints({
      root,
      account: ACCOUNT,
      workspaces: this.workspaces,
      world,
      options: settings,
    });
  }

  owner(thread = "t1", user = "u1"): WorkspaceOwner {
    return { user: user as UserId, thread: thread as ThreadId };
  }

  workerPids(): readonly number[] {
    return this.checkpoints.workerPids;
  }

  /** The path of a thread's workspace at home; made when missing. */
  async home(owner: WorkspaceOwner = this.owner()): Promise<string> {
    (await this.workspaces.locate(owner, { make: true }))?.close();
    return this.path(owner);
  }

  path({ user, thread }: WorkspaceOwner): string {
    return join(this.root, "homes", threadKeyOf(user, thread), "user-data");
  }

  take(owner: WorkspaceOwner = this.owner(), options: Partial<TakeOptions> = {}): Promise<Taken> {
    const usual = { cause: "requested", generation: null, environment: null, writers: "none" } as const;
    return this.checkpoints.take(owner, { ...usual, ...never, ...options });
  }

  /** Takes one, which must be new; returns its id. */
  async taken(owner: WorkspaceOwner = this.owner(), options: Partial<TakeOptions> = {}): Promise<string> {
    const taken = await this.take(owner, options);
    if (taken.kind !== "taken") throw new Error(`expected a new checkpoint, got ${taken.kind}`);
    return taken.checkpoint.id;
  }

  /** Each one is of a later generation. */
  spot(owner: WorkspaceOwner = this.owner()): WorkspaceSpot {
    const generation = this.#generation++ as Generation;
    return { ...owner, sandboxId: `s${generation}` as SandboxId, generation, place: "home" };
  }

  async restore(
    checkpoint: string,
    owner: WorkspaceOwner = this.owner(),
    { as = "restore", paths }: { as?: "restore" | "undo" | "redo"; paths?: readonly string[] } = {},
    call: LongCall = never,
  ) {
    const target = { checkpoint, requestId: world.randomHex(8), as, ...(paths !== undefined && { paths }) };
    return this.checkpoints.restore(this.spot(owner), target, null, call);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.checkpoints.close();
    this.workspaces.close();
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** What a checkpoint keeps of a tree, one line per name: kind, mode, time, content, and which names are one file. */
export function describeTree(path: string): string[] {
  return execFileSync("python3", ["-c", DESCRIBE, path], { encoding: "utf8", maxBuffer: 2 ** 28 })
    .split("\n")
    .filter((line) => line !== "");
}

const DESCRIBE = `
import os, sys, stat, hashlib
root = os.fsencode(sys.argv[1])
links = {}
lines = []
def visit(path, name):
    for entry in sorted(os.listdir(path)):
        full, rel = path + b"/" + entry, (name + b"/" + entry) if name else entry
        if entry.startswith(b".sandlot-draft-") or rel in (b".home/.cache", b".home/.npm/_cacache"): continue
        s = os.lstat(full)
        mode, when = oct(s.st_mode & 0o777), s.st_mtime_ns // 1000
        if stat.S_ISDIR(s.st_mode):
            lines.append(["d", repr(rel), mode, str(when)])
            visit(full, rel)
        elif stat.S_ISLNK(s.st_mode): lines.append(["l", repr(rel), repr(os.readlink(full)), str(when)])
        elif stat.S_ISREG(s.st_mode):
            with open(full, "rb") as f: digest = hashlib.file_digest(f, "sha256").hexdigest()
            lines.append(["f", repr(rel), mode, str(when), str(s.st_size), digest, ("ino", s.st_ino)])
            links.setdefault(s.st_ino, []).append(repr(rel))
visit(root, b"")
for line in lines:
    if isinstance(line[-1], tuple):
        names = links[line[-1][1]]
        line[-1] = names[0] if len(names) > 1 else "-"
    print(" ".join(line))
`;

/** Fills a workspace with one of everything that is kept. */
export function fill(path: string, files = 12): void {
  for (let at = 0; at < files; at++) {
    const directory = join(path, "workspace", `d${at % 3}`);
    mkdirSync(directory, { recursive: true });
    execFileSync("sh", ["-c", `printf '%s' "content ${at}" > "$0/f${at}.txt"`, directory]);
  }
}
