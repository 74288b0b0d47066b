/** Disk limits by measurement on a shared claim. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SandboxId } from "@sandlot/contract";
import { afterAll, expect, it } from "vitest";
import { DiskWatch, type WatchedSandbox } from "../../../../src/backends/kubernetes/workspaces/disk-watch.ts";
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
    room: async () => ({ freeBytes: 1, totalBytes: 1 }),
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

it("below 5 % free there are no new sandboxes", async () => {
  let freeBytes = 50;
  const room = async () => ({ freeBytes, totalBytes: 1_000 });
  const nothing = async () => {};
  const watch = new DiskWatch({
    ...{ world, room, files: {}, running: async () => [], onHit: () => {}, end: nothing, onProblem: () => {} },
  });
  await watch.checkRoom();
  freeBytes = 49;
  expect(await outcomeOf(watch.checkRoom())).toBe("engine_unavailable");
  await expect(watch.checkRoom()).rejects.toThrow("only 4.9 % of the workspaces volume is free");
});
