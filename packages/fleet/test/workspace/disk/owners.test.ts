/** Giving workspaces to accounts, where a sandbox cannot be shown files as its own. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { lstatSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { SandboxId } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Ground, isRoot, NOTE, world } from "./ground.ts";

const CHILD = fileURLToPath(new URL("give-child.ts", import.meta.url));
const FILES = 40_000;
const OWNER = { uid: 59_123, gid: 59_123 };

let ground: Ground;
beforeEach(() => {
  ground = Ground.fast();
});
afterEach(() => ground.dispose());

/** Processes that were started with a path, other than `pid`. */
function startedWith(path: string, pid: number): readonly number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((one) => Number.isInteger(one) && one !== pid && commandOf(one).includes(path));
}

/** What a process has started, and what that has. Faster than a look at every process: giving takes a tenth of a second. */
function startedBy(pid: number): readonly number[] {
  const children = read(`/proc/${pid}/task/${pid}/children`).split(" ").filter(Boolean).map(Number);
  return children.flatMap((child) => [child, ...startedBy(child)]);
}

function commandOf(pid: number): string {
  return read(`/proc/${pid}/cmdline`);
}

/** Empty when it has ended meanwhile. */
function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

describe.skipIf(!isRoot)("a workspace", () => {
  it("is not given any further once the fleet was killed, and the next one gives all of it", async () => {
    const path = await ground.homeWith(ground.newKey(), "x");
    const many = join(path, "workspace/many");
    mkdirSync(many);
    for (let count = 0; count < FILES; count++) writeFileSync(join(many, String(count)), "");
    const givenAway = () => readdirSync(many).filter((name) => lstatSync(join(many, name)).uid === OWNER.uid).length;
    const before = statSync(path).uid;
    const fleet = spawn(process.execPath, [CHILD, ground.root, path, String(OWNER.uid)], { stdio: "inherit" });
    const pid = fleet.pid ?? 0;
    let found: readonly number[] = [];
    while (!found.some((one) => commandOf(one).startsWith("chown\0-hR"))) {
      expect(fleet.exitCode).toBeNull();
      await new Promise(setImmediate);
      found = startedBy(pid);
    }
    // The one that changes owners first: it needs no longer than the rest of this takes.
    for (const one of found.toReversed()) process.kill(one, "SIGSTOP");
    fleet.kill("SIGKILL");
    await once(fleet, "exit");
    for (const one of startedWith(path, pid)) process.kill(one, "SIGCONT");
    await expect.poll(() => startedWith(path, pid), { timeout: 10_000 }).toEqual([]);
    expect(givenAway()).toBeLessThan(FILES);
    expect(statSync(path).uid).toBe(before);
    const next = spawn(process.execPath, [CHILD, ground.root, path, String(OWNER.uid)], { stdio: "inherit" });
    expect(await once(next, "exit")).toEqual([0, null]);
    expect([givenAway(), statSync(path).uid, statSync(join(path, NOTE)).uid]).toEqual([FILES, OWNER.uid, OWNER.uid]);
  }, 60_000);

  it("is not given to the account of an older generation's sandbox", async () => {
    const { workspaces } = ground;
    const key = ground.newKey();
    const sandboxId = world.randomHex(10) as SandboxId;
    const generation = ground.nextGeneration();
    const { place } = await workspaces.prepareSlot(sandboxId, generation, { owner: OWNER });
    const path = await ground.homeWith(key, "x");
    const before = statSync(path).uid;
    await expect(workspaces.moveIn({ ...key, sandboxId, generation, place })).rejects.toThrow("Generation");
    expect(statSync(path).uid).toBe(before);
  });
});
