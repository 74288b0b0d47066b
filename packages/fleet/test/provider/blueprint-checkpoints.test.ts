/** Settings of checkpoints that a blueprint has for itself. */

import { expect, test } from "vitest";
import type { TakeOptions } from "../../src/backend/checkpoints.ts";
import { newStage } from "../support/stage.ts";
import { intercepted } from "./intercepted-checkpoints.ts";

test("a blueprint without automatic ones gets those that are asked for, with its own list of what is left out", async () => {
  const stage = newStage({
    checkpoints: { leftOut: ["workspace/fleet"], quietMs: 5_000 },
    blueprints: { quiet: { checkpoints: { automatic: false, leftOut: ["workspace/node_modules"] } } },
  });
  const asked: (readonly string[] | undefined)[] = [];
  const { fleet } = await stage.open(undefined, (parts) => {
    const take = parts.backend.proxy.checkpoints?.take;
    intercepted(parts, {
      take(owner, options: TakeOptions) {
        asked.push(options.leftOut);
        if (take === undefined) throw new Error("no checkpoints");
        return take(owner, options);
      },
    });
  });
  for (const blueprint of ["quiet", "default"]) {
    const thread = { thread: blueprint };
    const lease = await fleet.acquire({ ...thread, blueprint });
    await lease.sandbox.exec("echo one > file");
    await stage.advance(20_000);
    await lease.release();
    await stage.settle();
    await stage.until(fleet.destroy(thread));
    await stage.settle();
    expect(await fleet.checkpoints.list(thread)).toHaveLength(blueprint === "quiet" ? 0 : 1);
    const again = await stage.until(fleet.acquire({ ...thread, blueprint }));
    await again.checkpoint({ label: "mine" });
    await again.release();
  }
  expect(asked[0]).toEqual(["workspace/node_modules"]);
  expect(asked.slice(1).every((leftOut) => leftOut === undefined || leftOut[0] === "workspace/fleet")).toBe(true);
});

test("settings of checkpoints make no other sandbox", async () => {
  const of = async (checkpoints: { readonly automatic: boolean }) => {
    const stage = newStage({ blueprints: { default: { checkpoints } } });
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    return (await stage.records()).map(({ blueprintHash }) => [lease.blueprint, blueprintHash]);
  };
  expect(await of({ automatic: true })).toEqual(await of({ automatic: false }));
});
