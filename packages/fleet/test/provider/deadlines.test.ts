/** Deadlines of an acquire: the error when the time is up, and what counts against it. */

import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

describe("deadlines", () => {
  test("name the stage that the acquire was at: creating", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    backend.hang("create");
    const started = stage.time.now;
    const error = await stage.refusal("acquire_timeout", fleet.acquire({ thread: "t1", timeoutMs: 700 }));
    expect(error.details).toEqual({ stage: "creating", timeoutMs: 700 });
    expect(error.retryable).toBe(true);
    expect(stage.time.now - started).toBe(700);
  });

  test("name the stage that the acquire was at: attaching", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const gate = backend.hang("attach");
    const error = await stage.refusal("acquire_timeout", fleet.acquire({ thread: "t1", timeoutMs: 700 }));
    expect(error.details.stage).toBe("attaching");
    gate.open();
  });

  test("name the stage that the acquire was at: waiting for room", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const { fleet } = await stage.open();
    await using _held = await fleet.acquire({ thread: "held" });
    const error = await stage.refusal("acquire_timeout", fleet.acquire({ thread: "t1", timeoutMs: 700 }));
    expect(error.details.stage).toBe("waiting for room");
  });

  test("name the stage that the acquire was at: waiting for a stop", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const gate = backend.hang("destroy");
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { timeoutMs: 50 }))).toBe("stopping");
    const error = await stage.refusal("acquire_timeout", fleet.acquire({ thread: "t1", timeoutMs: 700 }));
    expect(error.details.stage).toBe("waiting for a stop");
    gate.open();
  });

  test("name the stage that the acquire was at: waiting for another create", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const gate = a.backend.hang("create");
    const creating = a.fleet.acquire({ thread: "t1" });
    await stage.settle();
    const error = await stage.refusal("acquire_timeout", b.fleet.acquire({ thread: "t1", timeoutMs: 700 }));
    expect(error.details.stage).toBe("waiting for another create");
    gate.open();
    await (await stage.until(creating)).release();
  });

  test("of one caller do not end the wait of another", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const gate = backend.hang("create");
    const hasty = watched(fleet.acquire({ thread: "t1", timeoutMs: 100 }));
    const patient = fleet.acquire({ thread: "t1", timeoutMs: 10_000 });
    await stage.advance(1_000);
    expect(hasty.state).toBe("rejected");
    gate.open();
    const lease = await stage.until(patient);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
    expect(backend.callsOf("create")).toHaveLength(1);
    await lease.release();
  });

  test("hold for a remote lease of a held sandbox too, when the store hangs", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    await using _lease = await fleet.acquire({ thread: "t1" });
    const gate = store.hang("grantLease");
    const remote = watched(fleet.acquire({ thread: "t1", ttlMs: 60_000, timeoutMs: 700 }));
    await stage.advance(2_000);
    expect(remote.state).toBe("rejected");
    gate.open();
  });

  test("count all steps together: what the create took is gone for the row of a remote lease", async () => {
    const stage = newStage();
    const { fleet, backend, store } = await stage.open();
    const gates = [backend.hang("create"), store.hang("grantLease")];
    const remote = watched(fleet.acquire({ thread: "t1", ttlMs: 60_000, timeoutMs: 700 }));
    await stage.advance(600);
    gates[0]?.open();
    await stage.advance(150);
    expect(remote.state).toBe("rejected");
    await stage.refusal("acquire_timeout", remote.promise);
    gates[1]?.open();
  });

  test("count all steps together: also when what landed was lost before it could be taken", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    // Each sandbox dies in the very moment in which it is ready, a little later each time.
    backend.on("attach", async (proceed, { sandboxId }) => {
      const attachment = await proceed();
      await new Promise<void>((resolve) => stage.engineWorld.timer(300, resolve));
      stage.killSandbox(sandboxId);
      return attachment;
    });
    const acquiring = watched(fleet.acquire({ thread: "t1", timeoutMs: 1_000 }));
    await stage.advance(1_500);
    expect(acquiring.state).toBe("rejected");
  });

  test("hold for opening, too: an engine that does not list its objects is named", async () => {
    const stage = newStage();
    const opening = stage.open({}, ({ backend }) => void backend.hang("list"));
    await expect(opening).rejects.toMatchObject({ code: "engine_unavailable", retryable: true });
  });

  test("the default is acquireTimeoutMs", async () => {
    const stage = newStage({ acquireTimeoutMs: 1_234 });
    const { fleet, backend } = await stage.open();
    backend.hang("create");
    const error = await stage.refusal("acquire_timeout", fleet.acquire({ thread: "t1" }));
    expect(error.details.timeoutMs).toBe(1_234);
  });
});
