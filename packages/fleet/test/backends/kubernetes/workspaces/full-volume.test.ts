/** A volume without room: every step says so, nothing is half done, and what frees room works. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { ensureBound, settleWorkspace } from "../../../../src/backend/workspace-binding.ts";
import { outcomeOf, VolumeGround } from "./volume-ground.ts";

it("says so, leaves workspaces where they are, and is no trouble any more when there is room", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root can mount");
  const root = mkdtempSync(join(tmpdir(), "sandlot-full-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "sandlot-test", root]);
  try {
    const ground = await VolumeGround.open(root);
    const [bound, moving, fresh, purged] = [ground.newKey(), ground.newKey(), ground.newKey(), ground.newKey()];
    const inSlot = await ground.boundWith(bound, "bound");
    await ground.homeWith(moving, "moving");
    await ground.homeWith(purged, "purged");
    const target = await ground.slotFor(moving);
    const empty = await ground.slotFor(fresh);
    const filler = join(root, "filler");
    mkdirSync(filler);
    let number = 0;
    const fill = () => {
      for (;;) writeFileSync(join(filler, String(number++)), "", { flag: "wx" });
    };
    expect(fill).toThrow("ENOSPC");

    expect(await outcomeOf(ensureBound(ground.workspaces, target.spot))).toBe("disk_limit_exceeded");
    expect(await outcomeOf(ensureBound(ground.workspaces, empty.spot))).toBe("disk_limit_exceeded");
    expect(await outcomeOf(ground.workspaces.fence(fresh, ground.marker(fresh)))).toBe("disk_limit_exceeded");
    expect(await outcomeOf(ground.workspaces.prepareSlot("another-1"))).toBe("disk_limit_exceeded");
    expect([await ground.note(moving), await ground.note(fresh)]).toEqual(["moving", null]);
    // Going home and releasing are renames: they need no room.
    expect(await ground.workspaces.release(inSlot.spot.place)).toBe("occupied");
    await settleWorkspace(ground.workspaces, inSlot.spot, false);
    expect(await ground.note(bound)).toBe("bound");

    // A purge needs no room either, or a full volume could not be cleared.
    expect(fill).toThrow("ENOSPC");
    const marker = ground.marker(purged);
    await settleWorkspace(ground.workspaces, { ...purged, ...marker, place: "home" }, true);
    expect(await ground.note(purged)).toBe(null);

    rmSync(filler, { recursive: true });
    expect(await ensureBound(ground.workspaces, target.spot)).toBe("existing");
    expect(await ensureBound(ground.workspaces, empty.spot)).toBe("new");
    expect([await ground.note(moving), await ground.note(fresh)]).toEqual(["moving", ""]);
    await ground.workspaces.sweep(async () => true);
    expect(ground.names("trash")).toEqual([]);
  } finally {
    execFileSync("umount", [root]);
    rmSync(root, { recursive: true });
  }
});
