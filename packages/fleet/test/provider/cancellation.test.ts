/**
 * A cancelled acquire leaves nothing: no record, no engine object, no hold, no ticket. At every stage.
 */

import { describe, expect, test } from "vitest";
import { type Instance, newStage, type Stage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

async function expectNothing(stage: Stage, { fleet, attachments }: Instance): Promise<void> {
  await stage.advance(1_000);
  expect(await stage.records()).toEqual([]);
  expect(stage.objects()).toEqual([]);
  expect(stage.engine.leftovers()).toMatchObject({ slots: 0, markers: 0 });
  expect(attachments.openCount).toBe(0);
  expect(await fleet.list()).toEqual([]);
}

async function cancelled(stage: Stage, acquire: (signal: AbortSignal) => Promise<unknown>, when: () => Promise<void>) {
  const controller = new AbortController();
  const reason = new Error("the user went away");
  const { promise } = watched(acquire(controller.signal));
  await when();
  controller.abort(reason);
  expect(await stage.rejection(promise)).toBe(reason);
}

describe("a cancelled acquire rejects with the signal's reason and leaves nothing", () => {
  test("when it was cancelled before it began", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const reason = new Error("never mind");
    const { backend, fleet, store } = instance;
    store.forgetCalls();
    expect(await stage.rejection(fleet.acquire({ thread: "t1", signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(backend.callsOf("create")).toHaveLength(0);
    expect(store.callsOf("take")).toHaveLength(0);
    await expectNothing(stage, instance);
  });

  test("when it was cancelled before it began, also where a lease would cost nothing", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using _lease = await fleet.acquire({ thread: "t1" });
    const reason = new Error("never mind");
    expect(await stage.rejection(fleet.acquire({ thread: "t1", signal: AbortSignal.abort(reason) }))).toBe(reason);
  });

  test("in the queue", async () => {
    const stage = newStage({ limits: { max: 1, queueMax: 1 } });
    const instance = await stage.open();
    const { fleet } = instance;
    const held = await fleet.acquire({ thread: "held" });
    await cancelled(
      stage,
      (signal) => fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    // The only place in the queue is free again.
    const waiting = fleet.acquire({ thread: "t2" });
    await stage.settle();
    await held.release();
    await stage.until(fleet.destroy({ thread: "held" }));
    await (await stage.until(waiting)).release();
    await stage.until(fleet.destroy({ thread: "t2" }));
    await expectNothing(stage, instance);
  });

  test("while its reservation is being written", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const gate = instance.store.hang("take", { when: "after", deaf: true });
    await cancelled(
      stage,
      (signal) => instance.fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    gate.open();
    await expectNothing(stage, instance);
  });

  test.each([
    ["has not begun", { when: "before" }],
    ["has taken effect already", { when: "after" }],
    ["has taken effect and answers later", { when: "after", deaf: true }],
  ] as const)("during a create that %s", async (_, options) => {
    const stage = newStage();
    const instance = await stage.open();
    const gate = instance.backend.hang("create", options);
    await cancelled(
      stage,
      (signal) => instance.fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    await stage.advance(100);
    gate.open();
    await expectNothing(stage, instance);
  });

  test("during a create that goes on regardless and lands later", async () => {
    const stage = newStage();
    const instance = await stage.open();
    let land: () => void = () => undefined;
    instance.backend.on("create", async (_, spec) => {
      await new Promise<void>((resolve) => {
        land = resolve;
      });
      return stage.engine.create(spec);
    });
    await cancelled(
      stage,
      (signal) => instance.fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    await stage.advance(100);
    expect(await stage.records()).toEqual([]);
    land();
    await stage.settle();
    expect(stage.objects()).toEqual([]);
    await expectNothing(stage, instance);
  });

  test("while its sandbox is being published", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const gate = instance.store.hang("publish", { when: "after", deaf: true });
    await cancelled(
      stage,
      (signal) => instance.fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    gate.open();
    await expectNothing(stage, instance);
  });

  test("during the attach to what was made for it", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const gate = instance.backend.hang("attach");
    await cancelled(
      stage,
      (signal) => instance.fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    gate.open();
    await expectNothing(stage, instance);
  });

  test("without a thread, during the attach", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const gate = instance.backend.hang("attach");
    await cancelled(
      stage,
      (signal) => instance.fleet.acquire({ signal }),
      () => stage.settle(),
    );
    gate.open();
    await expectNothing(stage, instance);
  });

  test("during the attach to a parked sandbox, which stays as it was", async () => {
    const stage = newStage();
    const { fleet, backend, attachments } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    const gate = backend.hang("attach");
    await cancelled(
      stage,
      (signal) => fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    gate.open();
    await stage.advance(1_000);
    expect(await stage.recordOf("t1")).toEqual(
      expect.objectContaining({ sandboxId: lease.sandbox.id, state: "ready", holders: {} }),
    );
    expect(attachments.openCount).toBe(0);
  });

  test("in the very turn in which it lands", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const controller = new AbortController();
    const reason = new Error("too late");
    instance.fleet.events.on(() => controller.abort(reason), "sandbox-attached");
    const acquire = instance.fleet.acquire({ thread: "t1", signal: controller.signal });
    expect(await stage.rejection(acquire)).toBe(reason);
    await expectNothing(stage, instance);
  });

  test("after it has landed an abort changes nothing: the lease is the caller's to release", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const controller = new AbortController();
    await using lease = await fleet.acquire({ thread: "t1", signal: controller.signal });
    controller.abort();
    await stage.advance(1_000);
    expect((await lease.sandbox.exec("echo mine")).stdout).toBe("mine\n");
  });

  test("while the row of its remote lease is being written", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const gate = instance.store.hang("grantLease", { when: "after", deaf: true });
    await cancelled(
      stage,
      (signal) => instance.fleet.acquire({ thread: "t1", signal, ttlMs: 600_000 }),
      () => stage.settle(),
    );
    gate.open();
    await stage.advance(1_000);
    const record = await stage.recordOf("t1");
    expect(record?.leases ?? {}).toEqual({});
    expect(record?.holders ?? {}).toEqual({});
  });

  test("while a blank gets its new generation", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet, backend, attachments } = await stage.open();
    await stage.settle();
    const gate = backend.hang("rebind", { deaf: true });
    await cancelled(
      stage,
      (signal) => fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    gate.open();
    await stage.advance(1_000);
    expect((await stage.recordOf("t1"))?.holders ?? {}).toEqual({});
    expect(attachments.openCount).toBe(0);
  });

  test("when one of two waiting callers gives up, the other is served", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const gate = backend.hang("create");
    const patient = fleet.acquire({ thread: "t1" });
    await cancelled(
      stage,
      (signal) => fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    gate.open();
    await using lease = await stage.until(patient);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("the caller after a cancelled create gets its own sandbox", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const gate = backend.hang("create", { deaf: true });
    await cancelled(
      stage,
      (signal) => fleet.acquire({ thread: "t1", signal }),
      () => stage.settle(),
    );
    const next = fleet.acquire({ thread: "t1" });
    await stage.advance(100);
    gate.open();
    await using lease = await stage.until(next);
    await stage.advance(1_000);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([lease.sandbox.id]);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("a warm that is cancelled leaves nothing either", async () => {
    const stage = newStage();
    const instance = await stage.open();
    const gate = instance.backend.hang("create");
    await cancelled(
      stage,
      (signal) => instance.fleet.warm({ thread: "t1", signal }),
      () => stage.settle(),
    );
    gate.open();
    await expectNothing(stage, instance);
  });
});
