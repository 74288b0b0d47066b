/** Gives a workspace to an account: `give-child.ts <root> <thread key> <uid>`. */

import type { ThreadKey } from "@sandlot/contract";
import { DiskParts } from "../../../src/host/workspaces/parts.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const [root = "", thread = "", uid = ""] = process.argv.slice(2);
const account = { uid: Number(uid), gid: Number(uid) };
const { locks, owners } = new DiskParts({ root, account, world: systemWorld() });
await owners.give(thread as ThreadKey, account, () => {});
locks.close();
