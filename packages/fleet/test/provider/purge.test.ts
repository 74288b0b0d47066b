/** Destroying with `purge`: the workspace goes along, and a later sandbox sees nothing of its content. */

import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

const FILE = "/mnt/user-data/workspace/file";

describe("destroy", () => {
  test("with purge takes the workspace along", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write(FILE, "secret");
    await lease.release();
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { purge: true }))).toBe("stopped");
    expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(next.recovery.kind).toBe("empty");
    await stage.refusal("file_not_found", next.sandbox.files.readText(FILE));
  });

  test("with purge by force takes the workspace along although it is held", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write(FILE, "secret");
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { force: true, purge: true }))).toBe("stopped");
    expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
    await lease.release();
  });

  test("with purge removes the workspace also when there is no sandbox, and only that thread's", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    for (const thread of ["t1", "t2"]) {
      await (await fleet.acquire({ thread })).release();
      await stage.until(fleet.destroy({ thread }));
    }
    expect(stage.engine.leftovers().homes).toBe(2);
    await stage.until(fleet.destroy({ thread: "t1" }, { purge: true }));
    expect(stage.engine.leftovers().homes).toBe(1);
    expect(await stage.records()).toEqual([]);
    await using kept = await stage.until(fleet.acquire({ thread: "t2" }));
    expect(kept.recovery.kind).toBe("restored");
  });

  test("with purge removes the workspace also when the thread was used and ended while the claim was on its way", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    await stage.until(a.fleet.destroy({ thread: "t1" }));
    const gate = b.store.hang("claimForRemoval");
    const purging = b.fleet.destroy({ thread: "t1" }, { purge: true });
    await stage.settle();
    await (await stage.until(a.fleet.acquire({ thread: "t1" }))).release();
    await stage.until(a.fleet.destroy({ thread: "t1" }));
    gate.open();
    expect(await stage.until(purging)).toBe("stopped");
    expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
  });

  test("with purge lets no caller acquire the thread until the workspace is gone", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write(FILE, "secret");
    await lease.release();
    const gate = backend.hang("destroy");
    const destroying = fleet.destroy({ thread: "t1" }, { purge: true });
    await stage.settle();
    const acquiring = watched(fleet.acquire({ thread: "t1" }));
    await stage.advance(1_000);
    expect(acquiring.state).toBe("pending");
    gate.open();
    expect(await stage.until(destroying)).toBe("stopped");
    await using next = await stage.until(acquiring.promise);
    expect(next.recovery.kind).toBe("empty");
  });

  test("with purge, of what is already stopping for another reason, takes the workspace along", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const gate = backend.hang("destroy");
    const first = fleet.destroy({ thread: "t1" });
    await stage.settle();
    const second = fleet.destroy({ thread: "t1" }, { purge: true });
    await stage.settle();
    gate.open();
    expect(await stage.until(Promise.all([first, second]))).toEqual(["stopped", "stopped"]);
    expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
  });

  test("with purge, of a thread that has neither sandbox nor workspace, is absent and writes nothing", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { purge: true, force: true }))).toBe("absent");
    expect(store.callsOf("claimForRemoval")).toEqual([]);
    await (await fleet.acquire({ thread: "t1" })).release();
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { purge: true }))).toBe("stopped");
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { purge: true }))).toBe("absent");
  });
});
