/**
 * Runs one scenario and is killed before its n-th file system call: `crash-child.ts <root> <scenario> <matter> <n>`.
 * Prints the number of calls when it was not killed.
 */

import { crashBefore } from "./crash-point.ts";
import { Ground } from "./ground.ts";
import { type Matter, SCENARIOS } from "./scenarios.ts";

const [root = "", name = "", matter = "", call = ""] = process.argv.slice(2);
const ground = new Ground(root);
const point = await crashBefore(Number(call), "kill");
await SCENARIOS[name]?.act(ground.workspaces, JSON.parse(matter) as Matter);
console.log(point.calls());
