/** The empty workspace that a slot is made with: which thread takes it, and its end when it stays unused. */

import { existsSync, lstatSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import { ensureBound, settleWorkspace } from "../../../src/backend/workspace-binding.ts";
import { slotNameOf, USER_DATA } from "../../../src/host/workspaces/layout.ts";
import { crashBefore, Died } from "./crash-point.ts";
import { account, Ground } from "./ground.ts";

let ground: Ground;
beforeEach(() => {
  ground = Ground.fast();
});
afterEach(() => ground.dispose());

const slotOf = ({ place }: WorkspaceSpot) => slotNameOf(place) ?? "";
const spareOf = (spot: WorkspaceSpot) => ground.layout.spare(slotOf(spot));
const boundOf = (spot: WorkspaceSpot) => join(ground.layout.mnt(slotOf(spot)), USER_DATA);

it("becomes the workspace of a thread that has none, wherever its binder dies on the way", async () => {
  for (let call = 1, isOver = false; !isOver; call++) {
    const { spot } = await ground.slotFor(ground.newKey());
    const { ino, uid, mode } = lstatSync(spareOf(spot));
    const point = await crashBefore(call, "play-dead");
    try {
      await ensureBound(ground.workspaces, spot);
      isOver = point.calls() < call;
    } catch (error) {
      if (!(error instanceof Died)) throw error;
    } finally {
      point.remove();
    }
    await ensureBound(ground.peer(), spot);
    expect(lstatSync(boundOf(spot)), `after call ${call}`).toMatchObject({ ino, uid, mode });
    expect(existsSync(spareOf(spot)), `after call ${call}`).toBe(false);
    if (account !== null) expect(uid).toBe(account.uid);
  }
});

it("stays where it is for a thread that has a workspace, and goes with its slot", async () => {
  const key = ground.newKey();
  await ground.homeWith(key, "mine");
  const { spot } = await ground.slotFor(key);
  await ensureBound(ground.workspaces, spot);
  expect(existsSync(spareOf(spot))).toBe(true);
  expect(await ground.note(key)).toBe("mine");
  await ground.workspaces.dropSlot(spot.place);
  await settleWorkspace(ground.workspaces, spot, false);
  expect(ground.names("slots")).toEqual([]);
  expect(ground.names("trash")).toEqual([]);
  expect(ground.names("quarantine")).toEqual([]);
});

it("is not missed in a slot that was made without one", async () => {
  const { spot } = await ground.slotFor(ground.newKey());
  rmSync(spareOf(spot), { recursive: true });
  expect(await ensureBound(ground.workspaces, spot)).toBe("new");
  expect(lstatSync(boundOf(spot)).isDirectory()).toBe(true);
});
