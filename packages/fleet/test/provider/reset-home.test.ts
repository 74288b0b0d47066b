/** Emptying a thread's home: never under a sandbox, and nothing else goes. */

import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

const WRITE = "echo planted > ~/.bashrc; echo note > note";
const LOOK = "cat ~/.bashrc; cat note";

describe("a kept home", () => {
  test("survives idle reaping and the maximum lifetime", async () => {
    const stage = newStage({ idleTimeoutMs: 60_000, maxLifetimeMs: 600_000 });
    const { fleet } = await stage.open();
    const first = await fleet.acquire({ thread: "t1" });
    await first.sandbox.exec(WRITE);
    await first.release();
    await stage.advance(120_000);
    expect(await stage.records()).toEqual([]);
    const second = await stage.until(fleet.acquire({ thread: "t1" }));
    expect((await second.sandbox.exec(LOOK)).stdout).toBe("planted\nnote\n");
    await stage.advance(700_000);
    await second.release();
    await stage.settle();
    await using third = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(third.generation).toBeGreaterThan(second.generation);
    expect((await third.sandbox.exec(LOOK)).stdout).toBe("planted\nnote\n");
  });

  test("comes into a blank of the pool, and is there in the next sandbox", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.advance(5_000);
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    await first.sandbox.exec(WRITE);
    await first.release();
    await stage.until(fleet.destroy({ thread: "t1" }));
    await stage.advance(5_000);
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect((await next.sandbox.exec(LOOK)).stdout).toBe("planted\nnote\n");
    expect((await stage.recordOf("t1"))?.place).toMatch(/^slot:/);
  });
});

describe("resetHome", () => {
  test("ends the sandbox, empties the home and keeps the workspace", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec(WRITE);
    await lease.release();
    expect(await stage.until(fleet.resetHome({ thread: "t1" }))).toBe("stopped");
    expect(await stage.records()).toEqual([]);
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(next.recovery.kind).toBe("restored");
    expect((await next.sandbox.exec(LOOK)).stdout).toBe("note\n");
  });

  test("works for a thread without a sandbox, and for none but that", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    for (const thread of ["t1", "t2"]) {
      const lease = await fleet.acquire({ thread });
      await lease.sandbox.exec(WRITE);
      await lease.release();
      await stage.until(fleet.destroy({ thread }));
    }
    expect(await stage.until(fleet.resetHome({ thread: "t1" }))).toBe("stopped");
    await using one = await stage.until(fleet.acquire({ thread: "t1" }));
    await using two = await stage.until(fleet.acquire({ thread: "t2" }));
    expect((await one.sandbox.exec(LOOK)).stdout).toBe("note\n");
    expect((await two.sandbox.exec(LOOK)).stdout).toBe("planted\nnote\n");
  });

  test("is absent for a thread without files, and writes nothing", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    expect(await stage.until(fleet.resetHome({ thread: "t1" }, { force: true }))).toBe("absent");
    expect(store.callsOf("claimForRemoval")).toEqual([]);
  });

  test("is refused while another instance holds the sandbox, unless forced", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await using lease = await a.fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec(WRITE);
    const refused = await stage.refusal("sandbox_in_use", b.fleet.resetHome({ thread: "t1" }));
    expect(refused.details.holders).toEqual([a.fleet.instanceId]);
    expect((await lease.sandbox.exec(LOOK)).stdout).toBe("planted\nnote\n");
    const losses: string[] = [];
    lease.onLost(({ reason }) => losses.push(reason));
    expect(await stage.until(b.fleet.resetHome({ thread: "t1" }, { force: true }))).toBe("stopped");
    await stage.advance(1_000);
    expect(losses).toEqual(["destroyed"]);
    await stage.refusal("sandbox_lost", lease.sandbox.exec(LOOK));
    await using next = await stage.until(a.fleet.acquire({ thread: "t1" }));
    expect((await next.sandbox.exec(LOOK)).stdout).toBe("note\n");
  });

  test("lets no caller acquire the thread until the home is empty", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec(WRITE);
    await lease.release();
    const gate = backend.hang("destroy");
    const resetting = fleet.resetHome({ thread: "t1" });
    await stage.settle();
    const acquiring = watched(fleet.acquire({ thread: "t1" }));
    await stage.advance(1_000);
    expect(acquiring.state).toBe("pending");
    gate.open();
    expect(await stage.until(resetting)).toBe("stopped");
    await using next = await stage.until(acquiring.promise);
    expect((await next.sandbox.exec(LOOK)).stdout).toBe("note\n");
  });

  test("of what is already stopping empties the home afterwards", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec(WRITE);
    await lease.release();
    const gate = a.backend.hang("destroy");
    const ending = a.fleet.destroy({ thread: "t1" });
    await stage.settle();
    const resetting = b.fleet.resetHome({ thread: "t1" });
    await stage.settle();
    gate.open();
    expect(await stage.until(Promise.all([ending, resetting]))).toEqual(["stopped", "stopped"]);
    await using next = await stage.until(a.fleet.acquire({ thread: "t1" }));
    expect((await next.sandbox.exec(LOOK)).stdout).toBe("note\n");
  });

  test("is finished by another instance when its own dies in the middle", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec(WRITE);
    await lease.release();
    a.backend.hang("destroy");
    void a.fleet.resetHome({ thread: "t1" }).catch(() => undefined);
    await stage.settle();
    expect(await stage.recordOf("t1")).toMatchObject({ state: "stopping", emptyHome: true });
    a.crash({ seen: true });
    await using next = await stage.until(b.fleet.acquire({ thread: "t1" }));
    expect((await next.sandbox.exec(LOOK)).stdout).toBe("note\n");
  });

  test("is refused by a backend that keeps no home", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    Object.defineProperty(backend.proxy.workspaces, "emptyHome", { value: undefined });
    const refused = await stage.refusal("capability_missing", fleet.resetHome({ thread: "t1" }));
    expect(refused.details).toMatchObject({ capability: "kept-home" });
  });
});
