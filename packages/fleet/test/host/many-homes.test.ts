/**
 * A disk with very many homes. Not beside the other tests of workspaces: they also run on the lowest supported Node,
 * which cannot measure the processor time of one thread.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { worstTurn } from "../support/turn-watch.ts";
import { Ground } from "./workspaces/ground.ts";

let ground: Ground;
beforeEach(() => {
  ground = Ground.fast();
});
afterEach(() => ground.dispose());

/** The limit of every turn; see AGENTS.md. */
const TURN_MAX_MS = 50;

it("reads and sweeps very many homes without blocking this process", async () => {
  for (let count = 0; count < 20_000; count++) {
    const home = join(ground.layout.homes, count.toString(16).padStart(32, "0"));
    mkdirSync(home);
    writeFileSync(join(home, `fence.${count}.home.s${count}`), "");
  }
  const { workspaces } = ground;
  const latest = await worstTurn(async () => expect(await workspaces.latestGeneration()).toBe(19_999));
  const owners = await worstTurn(() => workspaces.owners());
  const sweep = await worstTurn(() => workspaces.sweep());
  console.log(`20000 homes, worst turn: latest ${latest} ms, owners ${owners} ms, sweep ${sweep} ms`);
  expect(Math.max(latest, owners, sweep)).toBeLessThan(TURN_MAX_MS);
});
