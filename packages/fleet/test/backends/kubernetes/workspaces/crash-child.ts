/**
 * Runs one scenario on a volume and is killed before its n-th file system call: `crash-child.ts <root> <scenario> <matter>
 * <n>`. Prints the number of calls when it was not killed.
 */

import { crashBefore } from "../../../host/workspaces/crash-point.ts";
import { type Matter, SCENARIOS } from "./scenarios.ts";
import { VolumeGround } from "./volume-ground.ts";

const [root = "", name = "", matter = "", call = ""] = process.argv.slice(2);
const ground = new VolumeGround(root);
const point = await crashBefore(Number(call), "kill");
await SCENARIOS[name]?.act(ground.workspaces, JSON.parse(matter) as Matter);
console.log(point.calls());
