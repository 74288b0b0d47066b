/** Does one job, and is killed before a given file system call: `crash-child <root> <job as JSON> <call>`. */

import { collect } from "../../../src/host/checkpoints/collect/collect.ts";
import { restore } from "../../../src/host/checkpoints/restore/restore.ts";
import { seed } from "../../../src/host/checkpoints/seed/seed.ts";
import { seam } from "../../../src/host/checkpoints/store/calls.ts";
import { take } from "../../../src/host/checkpoints/take/take.ts";
import { contextAt } from "./context.ts";

const [root = "", job = "", call = "0"] = process.argv.slice(2);
let left = Number(call);
process.umask(0);
seam.before = () => {
  if (--left === 0) process.kill(process.pid, "SIGKILL");
};
const { name, args } = JSON.parse(job);
const context = contextAt(root);
if (name === "take") await take(context, args[0], args[1]);
if (name === "restore") await restore(context, args[0], args[1], null);
if (name === "seed") await seed(context, args[0], args[1], null);
if (name === "collect")
  await collect(context, (problem) => {
    throw new Error(problem);
  });
process.exit(0);
