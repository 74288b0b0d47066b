/**
 * Does one job, and meets a fault: `crash-child <root> <job as JSON> <fault> <call>`.
 *
 *   kill   it is killed before that file system call
 *   full   from that call on, every call that needs room on the disk fails
 *
 * One that comes to its end prints what each call does to the disk (`Effect`), and the code of its error.
 */

import { isSandlotError } from "@sandlot/contract";
import { collect } from "../../../src/host/checkpoints/collect/collect.ts";
import { restore } from "../../../src/host/checkpoints/restore/restore.ts";
import { seed } from "../../../src/host/checkpoints/seed/seed.ts";
import { take } from "../../../src/host/checkpoints/take/take.ts";
import { contextAt } from "./context.ts";
import { countCalls } from "./counted-calls.ts";

const [root = "", job = "", fault, call] = process.argv.slice(2);
const { name, args } = JSON.parse(job);
const context = contextAt(root, name === "collect" ? args[0] : {});
process.umask(0);
let calls = "";
let isOver = false;
await countCalls((effect) => {
  if (isOver) return null;
  calls += effect;
  if (fault === "kill" && calls.length === Number(call)) process.kill(process.pid, "SIGKILL");
  const isFull = fault === "full" && effect === "+" && calls.length >= Number(call);
  return isFull ? Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC", errno: -28 }) : null;
});
let error: string | null = null;
try {
  if (name === "take") await take(context, args[0], args[1]);
  if (name === "restore") await restore(context, args[0], args[1], null);
  if (name === "seed") await seed(context, args[0], args[1], null);
  if (name === "collect")
    await collect(context, (problem) => {
      throw new Error(problem);
    });
} catch (thrown) {
  error = isSandlotError(thrown) ? thrown.code : String(thrown instanceof Error ? thrown.stack : thrown);
}
isOver = true;
process.stdout.write(JSON.stringify({ calls, error }), () => process.exit(0));
