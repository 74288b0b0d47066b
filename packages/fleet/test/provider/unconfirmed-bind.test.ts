/** A bind is confirmed to the store without a waiting caller. These tests lose the confirmation. */

import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";

const lost = () =>
  new SandlotError("store_unavailable", { operation: "confirmBound", problem: "lost", retryAfterMs: 100 });

describe("a bind whose confirmation got lost", () => {
  test("has given its thread a sandbox that stays the same for the next lease", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet, store } = await stage.open();
    await stage.settle();
    store.fail("confirmBound", lost());
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(first.recovery.kind).toBe("empty");
    await first.sandbox.exec("echo x > /tmp/scratch");
    expect((await stage.recordOf("t1"))?.boundFrom).not.toBeNull();
    await stage.until(first.release());
    // A caller that used it has reached its daemon, so nothing is left to confirm.
    expect((await stage.recordOf("t1"))?.boundFrom).toBeNull();
    await using second = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(second.recovery.kind).toBe("same");
    expect(await second.sandbox.files.readText("/tmp/scratch")).toBe("x\n");
  });

  test("is finished by the next attach, where its own instance died", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const a = await stage.open();
    await stage.settle();
    a.store.hang("confirmBound", { deaf: true });
    await stage.until(a.fleet.acquire({ thread: "t1" }));
    a.crash({ seen: true });
    const b = await stage.open();
    await stage.advance(20_000);
    await using lease = await stage.until(b.fleet.acquire({ thread: "t1" }));
    expect((await lease.sandbox.exec("echo works")).stdout).toBe("works\n");
    await stage.settle();
    expect((await stage.recordOf("t1"))?.boundFrom).toBeNull();
  });

  test("is confirmed before its hold is given back, so that nothing of a cancelled acquire stays", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet, store, backend } = await stage.open();
    await stage.settle();
    const confirming = store.hang("confirmBound", { deaf: true });
    const attaching = backend.hang("attach");
    const cancel = new AbortController();
    const acquiring = fleet.acquire({ thread: "t1", signal: cancel.signal });
    const refused = expect(acquiring).rejects.toThrow("enough");
    await stage.settle();
    expect([confirming.arrived, attaching.arrived]).toEqual([1, 1]);
    cancel.abort(new Error("enough"));
    await refused;
    confirming.open();
    attaching.open();
    await stage.advance(1_000);
    expect(await stage.recordOf("t1")).toBeNull();
  });
});
