/** Locks between processes, and the trial of late binding. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import { DiskLocks } from "../../../src/host/workspaces/locks.ts";
import { Ground, isRoot, outcomeOf, world } from "./ground.ts";

const HOLDER = fileURLToPath(new URL("./lock-holder.ts", import.meta.url));

let ground: Ground;
beforeEach(() => {
  ground = new Ground();
});
afterEach(() => ground.dispose());

describe("a lock", () => {
  it("is held by one at a time, and given back when its holder throws", async () => {
    const locks = [1, 2, 3].map(() => new DiskLocks(ground.layout.locks, world));
    let inside = 0;
    const rounds = Array.from({ length: 30 }, (_, round) =>
      locks[round % 3]?.hold(["a", "b"], () => {
        expect(++inside).toBe(1);
        inside--;
        if (round % 5 === 0) throw new Error("as planned");
      }),
    );
    const outcomes = await Promise.allSettled(rounds);
    expect(outcomes.filter(({ status }) => status === "rejected").length).toBe(6);
    for (const one of locks) one.close();
  });

  it("of a stopped process is waited for in bounded time, and of a killed one is free at once", async () => {
    const child = spawn(process.execPath, ["--conditions=sandlot-source", HOLDER, ground.layout.locks, "name"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    try {
      await once(child.stdout, "data");
      const impatient = new DiskLocks(ground.layout.locks, world, 100);
      expect(await outcomeOf(impatient.hold(["name"], () => "mine"))).toBe("engine_unavailable");
      expect(await impatient.hold(["another"], () => "mine")).toBe("mine");
      child.kill("SIGKILL");
      await once(child, "exit");
      expect(await impatient.hold(["name"], () => "mine")).toBe("mine");
      impatient.close();
    } finally {
      child.kill("SIGKILL");
    }
  });
});

describe("late binding", () => {
  it("is possible where a directory can be moved and slots belong to another account", () => {
    const root = join(ground.root, "other");
    const account = { uid: (process.getuid?.() ?? 0) + 1, gid: 1 };
    const workspaces = new DiskWorkspaces({ root, account, world });
    expect(workspaces.probeLateBinding()).toEqual({ possible: true });
    workspaces.close();
  });

  it("is not where sandboxes run as the fleet", () => {
    for (const account of [null, { uid: process.getuid?.() ?? 0, gid: 0 }]) {
      const workspaces = new DiskWorkspaces({ root: join(ground.root, "other"), account, world });
      const probe = workspaces.probeLateBinding();
      expect(probe.possible).toBe(false);
      expect(probe.possible ? "" : probe.reason).toContain("own account");
      workspaces.close();
    }
  });

  it("is not where homes and slots are on different mounts", async (context) => {
    if (!isRoot) return context.skip("only root can mount");
    const { execFileSync } = await import("node:child_process");
    mkdirSync(ground.layout.slots, { recursive: true });
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m", "sandlot-test", ground.layout.slots]);
    try {
      const probe = ground.workspaces.probeLateBinding();
      expect(probe.possible ? "" : probe.reason).toContain("different mounts");
      const key = ground.newKey();
      await ground.homeWith(key, "mine");
      const { spot } = await ground.slotFor(key);
      expect(await outcomeOf(ground.workspaces.moveIn(spot))).toBe("capability_missing");
      expect(await ground.note(key)).toBe("mine");
    } finally {
      execFileSync("umount", [ground.layout.slots]);
    }
    expect([ground.names("homes").filter((name) => name.startsWith(".")), ground.names("trash")]).toEqual([[], []]);
  });
});
