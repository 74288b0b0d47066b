/**
 * A lease was used and released, and the store has not taken the release yet. The next lease of the thread is not told that its
 * sandbox is new.
 */

import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";

const lost = () => new SandlotError("store_unavailable", { operation: "unhold", problem: "lost", retryAfterMs: 100 });

describe("a lease that follows a release which", () => {
  test.for(["made", "bound"])("is on its way joins the same sandbox, %s for its thread", async (how) => {
    const stage = newStage({ pool: { default: how === "bound" ? 1 : 0 } });
    const { fleet, store } = await stage.open();
    await stage.settle();
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(first.recovery.kind).toBe("empty");
    const gate = store.hang("unhold", { deaf: true });
    const releasing = first.release();
    const second = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(second.recovery.kind).toBe("same");
    gate.open();
    await stage.until(releasing);
    await stage.until(second.release());
    expect(await stage.recordOf("t1")).toMatchObject({ arrival: null, boundFrom: null });
    await using third = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(third.recovery.kind).toBe("same");
  });

  test("waits for the confirmation of a bind joins the same sandbox", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet, store } = await stage.open();
    await stage.settle();
    const gate = store.hang("confirmBound", { deaf: true });
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    const releasing = first.release();
    const second = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(second.recovery.kind).toBe("same");
    gate.open();
    await stage.until(releasing);
    await stage.until(second.release());
    await using third = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(third.recovery.kind).toBe("same");
  });

  test("is taken while the next one attaches joins the same sandbox", async () => {
    const stage = newStage();
    const { fleet, store, backend } = await stage.open();
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    const gate = store.hang("unhold", { deaf: true });
    const attaching = backend.hang("attach");
    const releasing = first.release();
    const acquiring = fleet.acquire({ thread: "t1" });
    await stage.settle();
    expect([gate.arrived, attaching.arrived]).toEqual([1, 1]);
    gate.open();
    await stage.until(releasing);
    attaching.open();
    await using second = await stage.until(acquiring);
    expect(second.recovery.kind).toBe("same");
  });

  test("is overtaken by an unused warm-up, is not new for another instance either", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const first = await stage.until(a.fleet.acquire({ thread: "t1" }));
    const gate = a.store.hang("unhold", { deaf: true });
    const releasing = first.release();
    await stage.until(a.fleet.warm({ thread: "t1" }));
    gate.open();
    await stage.until(releasing);
    await stage.settle();
    await using lease = await stage.until(b.fleet.acquire({ thread: "t1" }));
    expect(lease.recovery.kind).toBe("same");
  });

  test("got lost joins the same sandbox", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    store.fail("unhold", lost());
    await stage.until(first.release());
    await using second = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(second.recovery.kind).toBe("same");
  });
});
