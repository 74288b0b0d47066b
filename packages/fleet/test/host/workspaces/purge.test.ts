/** Removing a workspace in whatever state its sandbox left it. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import { Ground, isRoot, outcomeOf, world } from "./ground.ts";

let ground: Ground;
beforeEach(() => {
  ground = Ground.fast();
});
afterEach(() => ground.dispose());

async function homeAnd(fill: (workspace: string) => void): Promise<WorkspaceSpot> {
  const key = ground.newKey();
  const home = await ground.homeWith(key, "mine");
  fill(join(home, "workspace"));
  return { ...key, sandboxId: ground.marker(key).sandboxId, generation: ground.nextGeneration(), place: "home" };
}

async function purgeAndLook(spot: WorkspaceSpot): Promise<void> {
  await ground.workspaces.purge(spot);
  expect(await ground.workspaces.look(spot)).toEqual({ home: false, slot: false, stale: false });
  expect([ground.names("trash"), ground.notes()]).toEqual([[], []]);
}

describe("purge", () => {
  it("removes trees that are deeper than any path may be long", async () => {
    const deep = `
      const fs = require("node:fs");
      for (let depth = 0; depth < 3000; depth++) { fs.mkdirSync("directory"); process.chdir("directory"); }
      fs.writeFileSync("note", "deep");`;
    const spot = await homeAnd((workspace) => execFileSync(process.execPath, ["-e", deep], { cwd: workspace }));
    const before = readdirSync("/proc/self/fd").length;
    await purgeAndLook(spot);
    expect(readdirSync("/proc/self/fd").length).toBe(before);
  });

  it("removes many files in one directory", async () => {
    await purgeAndLook(
      await homeAnd((workspace) => execFileSync("/bin/sh", ["-c", "seq 20000 | xargs touch"], { cwd: workspace })),
    );
  });

  it("removes names that are no text", async () => {
    const names = [
      Buffer.from([0xff, 0xfe]),
      Buffer.from([0xc3]),
      ..."new\nline,-rf, ,*".split(",").map((one) => Buffer.from(one)),
    ];
    await purgeAndLook(
      await homeAnd((workspace) => {
        for (const name of names) {
          const directory = Buffer.concat([Buffer.from(`${workspace}/`), name]);
          mkdirSync(directory);
          writeFileSync(Buffer.concat([directory, Buffer.from("/"), name]), "");
        }
      }),
    );
  });

  it("does not follow symbolic links", async () => {
    const outside = join(ground.root, "outside");
    mkdirSync(outside);
    writeFileSync(join(outside, "precious"), "kept");
    await purgeAndLook(
      await homeAnd((workspace) => {
        symlinkSync(outside, join(workspace, "to-directory"));
        symlinkSync(join(outside, "precious"), join(workspace, "to-file"));
        symlinkSync("loop", join(workspace, "loop"));
      }),
    );
    expect(readFileSync(join(outside, "precious"), "utf8")).toBe("kept");
  });

  it("removes FIFOs and devices without opening them", async () => {
    await purgeAndLook(
      await homeAnd((workspace) => {
        execFileSync("mkfifo", [join(workspace, "fifo")]);
        if (isRoot) execFileSync("mknod", [join(workspace, "device"), "c", "1", "5"]);
      }),
    );
  });

  it("does not cross a mount point, says so, and finishes when it is gone", async (context) => {
    if (!isRoot) return context.skip("only root can mount");
    const outside = join(ground.root, "outside");
    mkdirSync(outside);
    writeFileSync(join(outside, "precious"), "kept");
    const spot = await homeAnd((workspace) => {
      mkdirSync(join(workspace, "a", "mounted"), { recursive: true });
      // A bind mount has the device number of the workspace, so the number does not reveal it.
      execFileSync("mount", ["--bind", outside, join(workspace, "a", "mounted")]);
    });
    try {
      expect(await outcomeOf(ground.workspaces.purge(spot))).toContain("EBUSY");
      expect(readFileSync(join(outside, "precious"), "utf8")).toBe("kept");
      expect(await ground.workspaces.look(spot)).toEqual({ home: false, slot: false, stale: false });
    } finally {
      const mounted = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
      for (const line of mounted.filter((one) => one.includes(ground.root)))
        execFileSync("umount", [line.split(" ")[4] ?? ""]);
    }
    await purgeAndLook(spot);
    expect(readFileSync(join(outside, "precious"), "utf8")).toBe("kept");
  });

  it("finds the workspace in a slot that its spot does not name", async () => {
    const key = ground.newKey();
    const { spot } = await ground.boundWith(key, "mine");
    const elsewhere = { ...spot, place: "home" as const };
    expect(await outcomeOf(ground.workspaces.purge(elsewhere))).toBe("sandbox_in_use");
    await ground.workspaces.dropSlot(spot.place);
    await ground.workspaces.purge(elsewhere);
    expect([await ground.note(key), ground.notes()]).toEqual([null, []]);
    expect(await ground.workspaces.dropSlot(spot.place)).toBe("dropped");
    expect(ground.names("slots")).toEqual([]);
  });

  it("by two processes at once removes it once", async () => {
    const fill = "for i in $(seq 30); do mkdir -p $i/a/b/c; seq 20 | sed s,^,$i/a/, | xargs touch; done";
    const spot = await homeAnd((workspace) => execFileSync("/bin/sh", ["-c", fill], { cwd: workspace }));
    const peers = [ground.peer(), ground.peer(), ground.workspaces];
    await Promise.all(peers.map((workspaces) => workspaces.purge(spot)));
    await purgeAndLook(spot);
  });
});

it("a purged thread is forgotten after a week, and its fence until then is not", async () => {
  const spot = await homeAnd(() => {});
  await ground.workspaces.purge(spot);
  const home = ground.layout.home(threadKeyOf(spot.user, spot.thread));
  expect(readdirSync(home)).toEqual([`fence.${spot.generation}.none.${spot.sandboxId}`]);
  const old = { ...spot, generation: (spot.generation - 1) as typeof spot.generation };
  expect(await outcomeOf(ground.workspaces.purge(old))).toBe("stale_generation");
  const later = (days: number) =>
    new DiskWorkspaces({
      root: ground.root,
      account: null,
      world: { ...world, wallMs: () => Date.now() + days * 24 * 3_600_000 },
    });
  for (const [days, isThere] of [
    [6, true],
    [8, false],
  ] as const) {
    const workspaces = later(days);
    await workspaces.sweep();
    workspaces.close();
    expect(existsSync(home)).toBe(isThere);
  }
});

it("a living workspace is never forgotten", async () => {
  const spot = await homeAnd(() => {});
  const home = ground.layout.home(threadKeyOf(spot.user, spot.thread));
  utimesSync(home, 1, 1);
  await ground.workspaces.sweep();
  expect(ground.notes()).toEqual(["mine"]);
});
