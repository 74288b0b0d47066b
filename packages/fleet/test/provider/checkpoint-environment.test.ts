/** The record of a checkpoint names the generation and the environment of the sandbox that had the files last. */

import { expect, test } from "vitest";
import { newStage } from "../support/stage.ts";

const T1 = { thread: "t1" } as const;

test("a checkpoint names the environment of its sandbox, and so do those of its files without one", async () => {
  const stage = newStage({ checkpoints: { automatic: false } });
  const { fleet } = await stage.open(undefined, ({ backend }) => {
    Object.defineProperty(backend.proxy, "environmentOf", { value: () => "python@1a2b", configurable: true });
  });
  const lease = await fleet.acquire(T1);
  await lease.sandbox.exec("echo one > file");
  const { checkpoint } = await lease.checkpoint();
  const user = { generation: lease.generation, environment: "python@1a2b" };
  expect(checkpoint).toMatchObject(user);
  await lease.sandbox.exec("echo two > file");
  await lease.release();
  await stage.until(fleet.destroy(T1));
  expect((await fleet.checkpoints.take(T1)).checkpoint).toMatchObject(user);
  const { checkpoint: restored, safety } = await stage.until(fleet.checkpoints.undo(T1));
  for (const { environment } of [restored, safety]) expect(environment).toBe(user.environment);
  const forked = await stage.until(fleet.checkpoints.fork(T1, "t2"));
  expect(forked.checkpoint).toMatchObject({ generation: null, environment: null });
});
