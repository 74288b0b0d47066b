/** Forgotten leases: reported once, with the stack where that is on, and not while they are used. */

import { describe, expect, test } from "vitest";
import { newStage } from "../../support/stage.ts";

const AFTER_MS = 60_000;
const LOOK_MS = 6_000;

describe("a lease that is held and not used", () => {
  test("is reported once, without a stack, with what it was for", async () => {
    const stage = newStage({ leakDetection: { afterMs: AFTER_MS } });
    const { fleet, eventsOf } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1", purpose: "forgotten" });
    await stage.advance(AFTER_MS - LOOK_MS);
    expect(eventsOf("lease-leaked")).toEqual([]);
    await stage.advance(2 * LOOK_MS);
    expect(eventsOf("lease-leaked")).toMatchObject([{ leaseId: lease.id, purpose: "forgotten", stack: null }]);
    expect(eventsOf("lease-leaked")[0]?.unusedMs).toBeGreaterThanOrEqual(AFTER_MS);
    await stage.advance(5 * AFTER_MS);
    expect(eventsOf("lease-leaked")).toHaveLength(1);
  });

  test("is reported with the stack of its acquire where stacks are captured", async () => {
    const stage = newStage({ leakDetection: { afterMs: AFTER_MS, captureStacks: true } });
    const { fleet, eventsOf } = await stage.open();
    await using _cold = await forgetful(fleet);
    await using _held = await forgetful(fleet);
    await stage.advance(AFTER_MS + LOOK_MS);
    expect(eventsOf("lease-leaked")).toHaveLength(2);
    for (const { stack } of eventsOf("lease-leaked")) {
      expect(stack).toContain("forgetful");
      expect(stack).not.toContain("provider.ts");
    }
  });

  test("is reported again only after it was used and forgotten again", async () => {
    const stage = newStage({ leakDetection: { afterMs: AFTER_MS } });
    const { fleet, eventsOf } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    await stage.advance(AFTER_MS + LOOK_MS);
    await lease.sandbox.exec("true");
    await stage.advance(AFTER_MS - LOOK_MS);
    expect(eventsOf("lease-leaked")).toHaveLength(1);
    await stage.advance(2 * LOOK_MS);
    expect(eventsOf("lease-leaked")).toHaveLength(2);
  });

  test("is not reported while a command runs through it, however long", async () => {
    const stage = newStage({ leakDetection: { afterMs: AFTER_MS } });
    const { fleet, eventsOf } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const running = lease.sandbox.exec("sleep 300");
    await stage.advance(290_000);
    expect(eventsOf("lease-leaked")).toEqual([]);
    await stage.until(running);
  });

  test("is not reported after its release, nor where detection is off", async () => {
    const stage = newStage();
    const on = await stage.open({ leakDetection: { afterMs: AFTER_MS } });
    const off = await stage.open();
    await (await on.fleet.acquire({ thread: "t1" })).release();
    await using _kept = await off.fleet.acquire({ thread: "t2" });
    await stage.advance(10 * AFTER_MS);
    expect([...on.eventsOf("lease-leaked"), ...off.eventsOf("lease-leaked")]).toEqual([]);
  });
});

/** Named, so that a stack can be searched for it. */
function forgetful(fleet: { acquire(request: { thread: string }): Promise<AsyncDisposable> }) {
  return fleet.acquire({ thread: "t1" });
}
