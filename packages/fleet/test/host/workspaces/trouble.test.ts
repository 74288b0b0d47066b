import { mkdirSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import type { Generation, SandboxId } from "@sandlot/contract";
import { expect, it } from "vitest";
import type { Place } from "../../../src/backend/backend.ts";
import { ensureBound } from "../../../src/backend/workspace-binding.ts";
import { slotNameOf } from "../../../src/host/workspaces/layout.ts";
import { Ground, isRoot, outcomeOf } from "./ground.ts";
import { onSmallDisk } from "./small-disk.ts";

it("a full disk says so, leaves nothing half-made, and is no trouble any more when there is room", async (context) => {
  if (!isRoot) return context.skip("only root can mount");
  await onSmallDisk(async (ground, fill) => {
    const key = ground.newKey();
    const { spot } = await ground.slotFor(key);
    const { spot: whole } = await ground.slotFor(ground.newKey());
    const slot = slotNameOf(spot.place) ?? "";
    for (const ahead of [
      ground.layout.spare(slot),
      ground.layout.spareHome(slot),
      join(ground.layout.slot(slot), "tenant.-"),
    ])
      rmSync(ahead, { recursive: true });
    const filler = fill();
    const bind = () => outcomeOf(ensureBound(ground.workspaces, spot));
    // All of it was preallocated.
    expect(await ensureBound(ground.workspaces, whole)).toBe("new");
    const prepare = () => outcomeOf(ground.workspaces.prepareHome(ground.marker(key)));
    // With one more inode each time, it fails at every possible point.
    for (let freed = 0; freed < 4; freed++) {
      expect(await prepare()).toBe("disk_limit_exceeded");
      expect(await bind()).toBe("disk_limit_exceeded");
      expect(await ground.workspaces.look(spot)).toMatchObject({ home: false, slot: false });
      await ground.workspaces.sweep();
      rmSync(join(filler, String(freed)));
    }
    rmSync(filler, { recursive: true });
    const later = { ...spot, generation: ground.nextGeneration() };
    expect(await ensureBound(ground.workspaces, later)).toBe("new");
    expect(await ground.note(key)).toBe("");
    expect(ground.names("markers")).toEqual([spot.sandboxId, whole.sandboxId].sort());
  });
});

it("a slot whose making was killed can be found and dropped", async () => {
  const ground = new Ground();
  try {
    const marker = ground.marker(ground.newKey());
    await ground.workspaces.prepareHome(marker);
    mkdirSync(join(ground.layout.slots, "half-17"));
    expect(await ground.workspaces.markedSandboxes()).toEqual([marker.sandboxId]);
    const half = { place: "slot:half-17", sandboxId: "half", generation: 17, tenant: null, released: false };
    expect(await ground.workspaces.slots()).toEqual([half]);
    await ground.workspaces.dropMarkers(marker.sandboxId);
    expect(await ground.workspaces.dropSlot("slot:half-17")).toBe("dropped");
    expect([ground.names("slots"), ground.names("markers"), ground.names("trash")]).toEqual([[], [], []]);
  } finally {
    ground.dispose();
  }
});

it("sweeping removes an old probe's remains and no fresh one's", async () => {
  const ground = new Ground();
  try {
    for (const name of [".probe-old", ".probe-new"]) mkdirSync(join(ground.layout.slots, name));
    utimesSync(join(ground.layout.slots, ".probe-old"), 1, 1);
    await ground.workspaces.sweep();
    expect(ground.names("slots")).toEqual([".probe-new"]);
    expect(await ground.workspaces.slots()).toEqual([]);
  } finally {
    ground.dispose();
  }
});

it("names the tenant of a slot", async () => {
  const ground = new Ground();
  try {
    const key = ground.newKey();
    const { spot } = await ground.slotFor(key);
    expect(await ground.workspaces.slotTenant(spot.place)).toBeNull();
    await ground.workspaces.makeIn(spot);
    const tenant = await ground.workspaces.slotTenant(spot.place);
    expect(tenant).toMatchObject({ generation: spot.generation, owner: key });
    expect(await ground.workspaces.slotTenant("slot:nothing-1")).toBeNull();
    expect(await ground.workspaces.slotTenant("home")).toBeNull();
    expect(await ground.workspaces.dropSlot("slot:nothing-1")).toBe("dropped");
  } finally {
    ground.dispose();
  }
});

it("a slot has names for what is mounted below it, and no name leads out of it", async () => {
  const ground = new Ground();
  try {
    const make = (generation: number, path: string, kind: "file" | "directory" = "directory") =>
      ground.workspaces.prepareSlot("sandbox" as SandboxId, generation as Generation, {
        mountPoints: [{ path, kind }],
      });
    await make(1, "skills/public");
    await make(2, "config/file", "file");
    for (const path of ["../x", "user-data/x", "acp-workspace", "/etc", "a//b", ""])
      expect(await outcomeOf(make(3, path)), path).toBe("invalid_path");
    expect(await outcomeOf(make(1, "again"))).toBe("file_exists");
    expect(await outcomeOf(ground.workspaces.dropSlot("slot:../homes" as Place))).toBe("invalid_path");
    expect(ground.names("slots")).toEqual(["sandbox-1", "sandbox-2"]);
    for (const name of ground.names("slots")) await ground.workspaces.dropSlot(`slot:${name}`);
    expect([ground.names("slots"), ground.names("quarantine"), ground.names("markers")]).toEqual([[], [], []]);
  } finally {
    ground.dispose();
  }
});
