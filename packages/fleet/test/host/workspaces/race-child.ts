/**
 * Binds and settles workspaces as fast as it can, beside others that do the same to the same ones: `race-child.ts
 * <root> <matters as JSON>`. Prints its results, one list of outcomes a matter.
 */

import { isSandlotError } from "@sandlot/contract";
import { ensureBound, settleWorkspace } from "../../../src/backend/workspace-binding.ts";
import { Ground } from "./ground.ts";
import type { Matter } from "./scenarios.ts";

const [root = "", matters = ""] = process.argv.slice(2);
const { workspaces } = new Ground(root);
const outcome = (promise: Promise<unknown>) =>
  promise.then(
    (value) => value ?? "settled",
    (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
  );

// All children begin together: each waits for the line that starts the race.
await new Promise((resolve) => process.stdin.once("data", resolve));
const outcomes: unknown[] = [];
for (const { spot } of JSON.parse(matters) as Matter[]) {
  const bound = await Promise.all([ensureBound(workspaces, spot), ensureBound(workspaces, spot)].map(outcome));
  const dropped = await outcome(workspaces.dropSlot(spot.place));
  outcomes.push([...bound, dropped, await outcome(settleWorkspace(workspaces, spot, false))]);
}
console.log(JSON.stringify(outcomes));
process.exit();
