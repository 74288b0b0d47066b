/** Gives a workspace to an account: `give-child.ts <root> <path> <uid>`. */

import { Layout } from "../../../src/workspace/disk/layout.ts";
import { Owners } from "../../../src/workspace/disk/owners.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const [root = "", path = "", uid = ""] = process.argv.slice(2);
const owner = { uid: Number(uid), gid: Number(uid) };
await new Owners(new Layout(root), owner, systemWorld()).give(path);
