/**
 * Binds a workspace, takes all rights to it and to its slot away as its sandbox could, and brings it home, as an account
 * without privileges: `ordinary-child.ts <root>`. Prints the note of the workspace.
 */

import { chmodSync } from "node:fs";
import { join } from "node:path";
import { settleWorkspace } from "../../../../src/backend/workspace-binding.ts";
import { VolumeGround } from "./volume-ground.ts";

const [root = ""] = process.argv.slice(2);
const ground = await VolumeGround.open(root);
const key = ground.newKey();
const { spot, mnt } = await ground.boundWith(key, "mine");
chmodSync(join(mnt, "user-data"), 0);
chmodSync(mnt, 0);
await ground.workspaces.release(spot.place);
await settleWorkspace(ground.workspaces, spot, false);
await ground.workspaces.fence(key, ground.marker(key));
console.log(await ground.note(key));
