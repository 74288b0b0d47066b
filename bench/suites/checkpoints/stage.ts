/** A workspace with 10,000 files, and its checkpoints. */

import {
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Generation, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { threadKeyOf } from "../../../packages/fleet/src/backend/labels.ts";
import { DiskCheckpoints } from "../../../packages/fleet/src/host/checkpoints/disk-checkpoints.ts";
import { DiskWorkspaces } from "../../../packages/fleet/src/host/workspaces/disk-workspaces.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import type { SuiteOptions } from "../suite.ts";

export const FILES = 10_000;
export const BYTES = 5_400;
/** Longer than the slack of a workspace at home: what was written before it is settled. */
const SETTLE_MS = 120;
export const OWNER = { user: "bench" as UserId, thread: "t" as ThreadId };
const USUAL = { cause: "requested", generation: null, environment: null, writers: "none" } as const;

export class Stage implements AsyncDisposable {
  readonly root = mkdtempSync(join(tmpdir(), "sandlot-bench-checkpoints-"));
  readonly workspaces: DiskWorkspaces;
  readonly checkpoints: DiskCheckpoints;
  readonly home: string;
  readonly signal = new AbortController().signal;
  #generation = 1;
  #serial = 0;

  private constructor() {
    const world = systemWorld();
    const [fleet, account] = [join(this.root, "fleet"), null];
    this.workspaces = new DiskWorkspaces({ root: fleet, account, world });
    this.checkpoints = new DiskCheckpoints({
      root: fleet,
      account,
      workspaces: this.workspaces,
      world,
      options: { freeBytesMin: 0 },
    });
    this.home = join(fleet, "homes", threadKeyOf(OWNER.user, OWNER.thread), "user-data");
  }

  static async open(): Promise<Stage> {
    const stage = new Stage();
    (await stage.workspaces.locate(OWNER, { make: true }))?.close();
    for (let at = 0; at < FILES; at++) {
      const directory = join(stage.home, "workspace", `d${at % 100}`);
      if (at < 100) mkdirSync(directory);
      writeFileSync(join(directory, `f${at}`), stage.content(BYTES));
    }
    await stage.settle();
    return stage;
  }

  content(bytes: number): Buffer {
    return Buffer.alloc(bytes, `${++this.#serial} `);
  }

  settle(): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  }

  async take(): Promise<string> {
    const taken = await this.checkpoints.take(OWNER, { ...USUAL, signal: this.signal });
    if (taken.kind === "nothing") throw new Error("The workspace is gone.");
    return taken.checkpoint.id;
  }

  async restore(checkpoint: string, as: "restore" | "undo"): Promise<void> {
    const generation = this.#generation++ as Generation;
    const spot = { ...OWNER, sandboxId: "bench" as SandboxId, generation, place: "home" } as const;
    const target = { checkpoint, as, requestId: String(generation) };
    await this.checkpoints.restore(spot, target, null, { signal: this.signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.checkpoints.close();
    this.workspaces.close();
    rmSync(this.root, { recursive: true, force: true });
  }
}

export function planOf({ quick }: SuiteOptions) {
  return { rounds: quick ? 3 : 11, batch: 1, timingsPerRound: 1, warmUp: 1 };
}

/** The same calls as a take's walk, and nothing else. */
export function walk(path: string): void {
  const root = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  const visit = (descriptor: number) => {
    for (const name of readdirSync(`/proc/self/fd/${descriptor}`, { encoding: "latin1" as "utf8" })) {
      const below = `/proc/self/fd/${descriptor}/${name}`;
      if (!lstatSync(below, { bigint: true }).isDirectory()) continue;
      const child = openSync(below, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
      visit(child);
      closeSync(child);
    }
  };
  visit(root);
  closeSync(root);
}
