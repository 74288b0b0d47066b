/** Disk limits by measurement on a shared claim. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SandboxId } from "@sandlot/contract";
import { afterAll, expect, it } from "vitest";
import { DiskWatch, type WatchedSandbox } from "../../../../src/backends/kubernetes/workspaces/disk-watch.ts";
import { SharedWorkspaces } from "../../../../src/backends/kubernetes/workspaces/shared-workspaces.ts";
import { hostWorkspaces } from "../../../../src/host/workspaces/host-workspaces.ts";
import { outcomeOf, VolumeGround, world } from "./volume-ground.ts";

const ground = await VolumeGround.open();
afterAll(() => ground.dispose());
const MIB = 1024 * 1024;

it("a workspace over its limit is told once, one over twice the limit is ended", async () => {
  const [key, other] = [ground.newKey(), ground.newKey()];
  const home = await ground.homeWith(key, "");
  await ground.homeWith(other, "");
  const fill = (bytes: number) => writeFileSync(join(home, "workspace/fill"), Buffer.alloc(bytes, 1));
  const running: WatchedSandbox[] = [
    { ...key, sandboxId: "big" as SandboxId, diskBytes: MIB },
    { ...other, sandboxId: "small" as SandboxId, diskBytes: MIB },
  ];
  const events: string[] = [];
  const watch = new DiskWatch({
    world,
    files: hostWorkspaces(ground.workspaces, world),
    running: async () => running,
    onHit: (sandboxId, because) => events.push(`hit ${sandboxId}: ${because}`),
    end: async (sandboxId) => void events.push(`end ${sandboxId}`),
    onProblem: (problem) => events.push(problem),
  });
  await watch.look();
  expect(events).toEqual([]);
  fill(1.5 * MIB);
  await watch.look();
  await watch.look();
  expect(events).toEqual([
    expect.stringMatching(/^hit big: the workspace takes 1\.5 MiB of the 1\.0 MiB that it may$/),
  ]);
  fill(0);
  await watch.look();
  fill(3 * MIB);
  await watch.look();
  expect(events.slice(1)).toEqual([expect.stringContaining("hit big"), "end big"]);
});

it("below 5 % free there are no new sandboxes, blanks included", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root can mount");
  const mountPath = mkdtempSync(join(tmpdir(), "sandlot-room-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=10m", "sandlot-test", mountPath]);
  const options = { claimName: "claim", mountPath, folder: "fleet", world, hasLateBinding: true, deadlineMs: 60_000 };
  const shared = new SharedWorkspaces(options);
  try {
    const blank = { labels: { sandboxId: "blank", generation: 1 }, marker: null } as never;
    expect(await shared.prepare(blank)).toMatchObject({ subPath: "fleet/s/blank-1/mnt", mountPath: "/mnt" });
    writeFileSync(join(mountPath, "fill"), Buffer.alloc(9.7 * MIB, 1));
    for (const marker of [null, ground.marker(ground.newKey())]) {
      const refused = shared.prepare({ labels: { sandboxId: "blank", generation: 2 }, marker } as never);
      await expect(refused).rejects.toThrow(/only [0-4]\.\d % of the workspaces volume is free/);
      expect(await outcomeOf(refused)).toBe("engine_unavailable");
    }
  } finally {
    await shared.close();
    execFileSync("umount", [mountPath]);
    rmSync(mountPath, { recursive: true });
  }
});
