/**
 * The groups that a fleet makes to test its rights, on trees of plain directories: which fleet removes another's
 * leftovers, and that this harms no other fleet.
 */

import fs, { existsSync, mkdirSync, mkdtempSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { afterEach, beforeEach, expect, it, onTestFinished } from "vitest";
import { ControlGroups } from "../../../src/host/limits/control-groups.ts";
import { versionOne } from "../../../src/host/limits/group-files.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const FLEET = "fleet-1" as FleetId;
let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "sandlot-trials-"));
});
afterEach(() => rmSync(root, { recursive: true }));

const TREES = ["memory", "pids"] as const;
const trees = () => ({ memory: join(root, "memory"), pids: join(root, "pids") });
const open = () => new ControlGroups(versionOne(trees()), new Set(TREES), FLEET, systemWorld());

/** As if a fleet had been killed there. */
function leave(name: string, fleet: string = FLEET): readonly string[] {
  const paths = TREES.map((tree) => join(root, tree, "sandlot", fleet, name));
  for (const path of paths) mkdirSync(path, { recursive: true });
  return paths;
}

it("removes trials of its fleet that were left, and nothing else", () => {
  const gone = leave(".trial-aa");
  const kept = [...leave("sandbox-1"), ...leave(".trial-cc", "fleet-2")];
  open();
  expect(gone.filter(existsSync)).toEqual([]);
  expect(kept.filter(existsSync)).toEqual(kept);
});

it("leaves nothing where nothing else was", () => {
  leave(".trial-aa");
  open();
  expect(TREES.flatMap((tree) => readdirSync(join(root, tree)))).toEqual([]);
});

it("opens although something is in a trial that keeps it there", () => {
  const [busy = ""] = leave(".trial-aa");
  mkdirSync(join(busy, "below"));
  open();
  expect(existsSync(join(busy, "below"))).toBe(true);
});

it("opens although its own trial, with what is above, is removed as soon as it is made", () => {
  const original = fs.mkdirSync;
  const restore = () => {
    fs.mkdirSync = original;
    syncBuiltinESMExports();
  };
  onTestFinished(restore);
  let removed = 0;
  fs.mkdirSync = ((path: string, ...rest: [fs.MakeDirectoryOptions]) => {
    const made = original(path, ...rest);
    if (!path.includes(".trial-")) return made;
    for (const directory of [path, dirname(path), dirname(dirname(path))]) rmdirSync(directory);
    removed += 1;
    return made;
  }) as typeof fs.mkdirSync;
  syncBuiltinESMExports();
  open();
  expect(removed).toBe(TREES.length);
});
