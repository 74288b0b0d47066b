/** The latest generation that has used any workspace: a new store continues from it. */

import { symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Ground } from "./ground.ts";

let ground: Ground;
beforeEach(() => {
  ground = Ground.fast();
});
afterEach(() => ground.dispose());

it("is 0 where no workspace was ever used", async () => {
  await ground.slotFor(ground.newKey());
  expect(await ground.workspaces.latestGeneration()).toBe(0);
});

it("is the highest, of workspaces at home, in a slot and purged, and is read from the disk", async () => {
  for (let count = 0; count < 150; count++) await ground.homeWith(ground.newKey(), "mine");
  const home = await ground.workspaces.latestGeneration();
  expect(home).toBeGreaterThan(0);
  const { spot } = await ground.boundWith(ground.newKey(), "mine");
  expect(await ground.workspaces.latestGeneration()).toBe(spot.generation);
  const key = ground.newKey();
  await ground.homeWith(key, "mine");
  const generation = ground.nextGeneration();
  await ground.workspaces.purge({ ...key, sandboxId: ground.marker(key).sandboxId, generation, place: "home" });
  expect(await ground.peer().latestGeneration()).toBe(generation);
});

it("leaves out homes that cannot be read, so that the fleet still recovers, and reports them once", async () => {
  const { spot } = await ground.boundWith(ground.newKey(), "mine");
  const problems: string[] = [];
  const latest = () => ground.workspaces.latestGeneration((problem) => problems.push(problem));
  expect(await latest()).toBe(spot.generation);
  expect(problems).toEqual([]);
  for (const digit of ["0", "1"]) {
    const damaged = join(ground.layout.homes, digit.repeat(32));
    symlinkSync(damaged, damaged);
  }
  expect(await latest()).toBe(spot.generation);
  expect(problems).toEqual([expect.stringMatching(/^2 homes cannot be read, such as [01]{32}: ELOOP/)]);
});
