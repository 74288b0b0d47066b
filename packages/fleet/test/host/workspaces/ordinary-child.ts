/**
 * An ordinary user's fleet, whose sandboxes run as the same user: `ordinary-child.ts <root>`. Every operation on a
 * workspace, with directories whose rights the sandbox removed. Prints its observations.
 */

import { chmodSync, lstatSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ensureBound, settleWorkspace } from "../../../src/backend/workspace-binding.ts";
import { Ground, NOTE, outcomeOf } from "./ground.ts";

const ground = new Ground(process.argv[2] ?? "");
const { workspaces } = ground;

/** A sandbox's means to keep its files: no rights for any account, at every level. */
function lock(userData: string): void {
  const deep = join(userData, "workspace", "a", "b");
  mkdirSync(deep, { recursive: true });
  writeFileSync(join(deep, "file"), "x", { mode: 0o000 });
  mkdirSync(join(userData, "workspace", "unreadable"));
  writeFileSync(join(userData, "workspace", "unreadable", "file"), "x");
  chmodSync(join(userData, "workspace", "unreadable"), 0o300);
  for (const path of [deep, join(userData, "workspace", "a"), join(userData, "workspace"), userData])
    chmodSync(path, 0);
}

const walk = ground.newKey();
await ground.homeWith(walk, "mine");
const { spot, mntPath } = await ground.slotFor(walk);
const bound = await ensureBound(workspaces, spot);
chmodSync(join(mntPath, "user-data"), 0);
await workspaces.dropSlot(spot.place);
await settleWorkspace(workspaces, spot, false);
const home = lstatSync(ground.homePath(walk));
await workspaces.prepareHome(ground.marker(walk));
const handle = await workspaces.locate(walk);
await handle?.files.write("uploads/a/b", "written");
const note = await ground.note(walk);
writeFileSync(join(ground.homePath(walk), "workspace", "closed"), "x", { mode: 0o000 });
const denied = await outcomeOf(handle?.files.read("workspace/closed") ?? Promise.resolve());

const purged = ground.newKey();
lock(await ground.homeWith(purged, "locked"));
await workspaces.purge({ ...spot, ...purged, place: "home", generation: ground.nextGeneration() });

const inSlot = await ground.boundWith(ground.newKey(), "locked");
lock(join(inSlot.mntPath, "user-data"));
await workspaces.dropSlot(inSlot.spot.place);
await settleWorkspace(workspaces, inSlot.spot, true);

await handle?.files.mkdir("outputs/tree/below");
chmodSync(join(ground.homePath(walk), "outputs", "tree"), 0);
await handle?.files.remove("outputs/tree", { recursive: true });

handle?.close();
console.log(
  JSON.stringify({
    ...{ uid: process.getuid?.(), bound, owner: home.uid, note, denied, mode: lstatSync(ground.root).mode & 0o777 },
    lateBinding: workspaces.probeLateBinding().possible,
    left: [ground.names("slots"), ground.names("trash"), ground.names("quarantine"), ground.notes(), NOTE],
  }),
);
