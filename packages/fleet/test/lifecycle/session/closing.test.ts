/** A fleet that closes while it renews its session. */

import { expect, test } from "vitest";
import { newStage } from "../../support/stage.ts";

const LIFETIME_MS = 16_000;

test("a fleet that closes while it asks about what it holds, after the store was lost, has no timer left", async () => {
  const stage = newStage({ sessionLifetimeMs: LIFETIME_MS });
  const { fleet, world, backend } = await stage.open();
  await stage.until(fleet.acquire({ thread: "t1" }));
  await stage.loseStore();
  let isAsked = false;
  backend.on("probe", () => {
    isAsked = true;
    return new Promise(() => undefined);
  });
  // Its clock has jumped, so a destroy makes it renew its session at once, outside of its loops.
  world.stepWallClock(60_000);
  void fleet.destroy({ user: "local", thread: "t2" }).catch(() => undefined);
  await stage.time.untilTrue("it asks its engine", () => isAsked);
  await stage.until(fleet.close());
  expect(stage.time.timersOf(world)).toBe(0);
});
