/** Issues that users of DeerFlow's sandbox provider opened: each case is a promise here. */

import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";

const unreachable = (sandboxId: string) =>
  new SandlotError("sandbox_unreachable", { sandboxId, problem: "no route", retryAfterMs: 1 });

describe("leases of several callers", () => {
  test("an upload's temporary lease beside a running agent's lease never parks the sandbox", async () => {
    const stage = newStage();
    const { fleet, typesOf } = await stage.open();
    await using agent = await fleet.acquire({ thread: "t1", purpose: "agent" });
    const running = agent.sandbox.exec("sleep 5; echo done");
    {
      await using upload = await fleet.acquire({ thread: "t1", purpose: "upload" });
      await upload.sandbox.files.write("/mnt/user-data/uploads/a.txt", "data");
    }
    expect(typesOf("lease-released", "sandbox-parked")).toEqual(["lease-released"]);
    expect(await stage.recordOf("t1")).toMatchObject({ state: "ready", parkedAt: null });
    expect(await stage.until(running)).toMatchObject({ status: "completed", stdout: "done\n" });
  });

  test.each([
    ["succeeds", async () => undefined],
    [
      "fails",
      async () => {
        throw new Error("disk full");
      },
    ],
    [
      "is refused for its size",
      async () => {
        throw new SandlotError("file_too_large", { path: "/mnt/user-data/uploads/a", sizeBytes: 9, maxBytes: 8 });
      },
    ],
  ])("a temporary lease is given back when the upload %s", async (_, upload) => {
    const stage = newStage();
    const { fleet, events } = await stage.open();
    await using agent = await fleet.acquire({ thread: "t1" });
    const attempt = async () => {
      await using _lease = await fleet.acquire({ thread: "t1", purpose: "upload" });
      await upload();
    };
    await attempt().catch(() => undefined);
    const count = (type: string) => events.filter((event) => event.type === type).length;
    expect(count("lease-acquired") - count("lease-released")).toBe(1);
    expect((await agent.sandbox.exec("echo still here")).stdout).toBe("still here\n");
    await agent.release();
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ state: "ready", holders: {} }));
  });

  test("every in-process acquire of an active sandbox needs its own release", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const first = await fleet.acquire({ thread: "t1" });
    const second = await fleet.acquire({ thread: "t1" });
    const third = await fleet.acquire({ thread: "t1" });
    await second.release();
    await second.release();
    await first.release();
    expect(Object.keys((await stage.recordOf("t1"))?.holders ?? {})).toEqual([fleet.instanceId]);
    expect(store.callsOf("unhold")).toHaveLength(0);
    await third.release();
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
    expect(store.callsOf("unhold")).toHaveLength(1);
  });
});

describe("a sandbox that died", () => {
  test.each([
    ["closes", null],
    ["rejects", () => Promise.reject(new Error("broken pipe"))],
    ["never answers", () => new Promise<void>(() => undefined)],
    [
      "throws at once",
      (): Promise<void> => {
        throw new Error("broken pipe");
      },
    ],
  ])("is replaced on the next use, and its connection closed, when that closing %s", async (_, disturb) => {
    const stage = newStage();
    const { fleet, attachments } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const dead = { id: lease.sandbox.id, generation: lease.generation };
    await lease.sandbox.files.write("/mnt/user-data/workspace/kept.txt", "kept");
    if (disturb !== null) {
      attachments.disturbClose = (close) => {
        attachments.disturbClose = null;
        void close();
        return disturb();
      };
    }
    stage.killSandbox(dead.id);
    await stage.settle();
    const text = await stage.until(lease.sandbox.files.readText("/mnt/user-data/workspace/kept.txt"));
    expect(text).toBe("kept");
    expect(lease.generation).toBeGreaterThan(dead.generation);
    expect(attachments.isOpen(dead.id, dead.generation)).toBe(false);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([lease.sandbox.id]);
  });

  test("is found on use when the engine's event was missed", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const before = lease.generation;
    stage.engine.suspendEvents();
    stage.killSandbox(lease.sandbox.id);
    const outcomes = await Promise.allSettled([stage.until(lease.sandbox.exec("true"))]);
    const result = await stage.until(lease.sandbox.exec("echo back"));
    expect(result.stdout).toBe("back\n");
    expect(lease.generation).toBeGreaterThan(before);
    expect(outcomes).toHaveLength(1);
  });

  test("fails a command that was running in it with sandbox_lost", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const running = lease.sandbox.exec("sleep 60");
    await stage.settle();
    stage.killSandbox(lease.sandbox.id);
    const error = await stage.refusal("sandbox_lost", running);
    expect(error.details.reason).toBe("crashed");
  });

  test("a use that meets the death of its sandbox answers with its next generation, or that it is lost", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    stage.killSandbox(lease.sandbox.id);
    const [outcome] = await Promise.allSettled([stage.until(lease.sandbox.exec("echo on"))]);
    if (outcome?.status === "fulfilled") expect(outcome.value.stdout).toBe("on\n");
    else expect(outcome?.reason).toMatchObject({ code: "sandbox_lost" });
  });

  test("takes all ways to find it along, at every instance that holds it", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const leases = [
      await a.fleet.acquire({ thread: "t1" }),
      await a.fleet.acquire({ thread: "t1" }),
      await b.fleet.acquire({ thread: "t1" }),
    ];
    const { id } = leases[0]!.sandbox;
    stage.killSandbox(id);
    await stage.settle();
    expect(a.fleet.get(id)).toBeUndefined();
    expect(b.fleet.get(id)).toBeUndefined();
    const results = await stage.until(Promise.all(leases.map((lease) => lease.sandbox.exec("true"))));
    expect(results.map(({ exitCode }) => exitCode)).toEqual([0, 0, 0]);
    expect(new Set(leases.map(({ sandbox }) => sandbox.id))).not.toContain(id);
    expect(new Set(leases.map(({ generation }) => generation)).size).toBe(1);
    expect(stage.objects()).toHaveLength(1);
  });

  test("with autoRestart off answers sandbox_lost to every use until the release, and a new acquire gets the next generation", async () => {
    const stage = newStage({ autoRestart: false });
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const { generation } = lease;
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    for (let use = 0; use < 3; use += 1) {
      const error = await stage.refusal("sandbox_lost", lease.sandbox.exec("true"));
      expect(error.details).toMatchObject({ generation, reason: "crashed" });
    }
    await stage.refusal("sandbox_lost", lease.sandbox.files.readText("/etc/hostname"));
    const next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(next.generation).toBeGreaterThan(generation);
    await stage.refusal("sandbox_lost", lease.sandbox.exec("true"));
    await lease.release();
    await stage.refusal("lease_released", lease.sandbox.exec("true"));
    expect((await next.sandbox.exec("echo fresh")).stdout).toBe("fresh\n");
    await next.release();
  });

  test("while parked leaves nothing, and the thread gets a new one with its workspace", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write("/mnt/user-data/workspace/a", "1");
    const { id } = lease.sandbox;
    await lease.release();
    stage.killSandbox(id);
    await stage.settle();
    expect(stage.objects()).toEqual([]);
    expect(await stage.records()).toEqual([]);
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(next.recovery.kind).toBe("restored");
  });
});

describe("health", () => {
  test("a stale health answer never removes a fresh generation", async () => {
    const stage = newStage();
    const { fleet, backend, attachments } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const old = lease.sandbox.id;
    const answers: ((liveness: "dead") => void)[] = [];
    backend.on("probe", () => new Promise((resolve) => answers.push(resolve)));
    attachments.breakOff(old);
    await stage.settle();
    expect(answers).toHaveLength(1);
    stage.killSandbox(old);
    await stage.settle();
    await stage.until(lease.sandbox.exec("true"));
    const fresh = lease.sandbox.id;
    for (const answer of answers) answer("dead");
    await stage.advance(1_000);
    expect(fleet.get(fresh)).toBeDefined();
    expect((await stage.until(lease.sandbox.exec("echo alive"))).stdout).toBe("alive\n");
    expect(lease.sandbox.id).toBe(fresh);
  });

  test("a broken connection to a living sandbox is mended, and nothing is destroyed", async () => {
    const stage = newStage();
    const { fleet, attachments, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const { id, generation } = lease.sandbox;
    attachments.breakOff(id);
    await stage.settle();
    expect(attachments.openedCount).toBe(2);
    expect(attachments.openCount).toBe(1);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(lease.generation).toBe(generation);
    expect(backend.callsOf("destroy")).toHaveLength(0);
  });

  test("calls that fail on a connection that stands do not close it under the others", async () => {
    const stage = newStage();
    const { fleet, attachments, backend } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const running = lease.sandbox.exec("sleep 5; echo done");
    await stage.settle();
    attachments.failNext = [unreachable(lease.sandbox.id), unreachable(lease.sandbox.id)];
    const failed = [lease.sandbox.exec("true"), lease.sandbox.exec("true")];
    await Promise.all(failed.map((one) => stage.refusal("sandbox_unreachable", one)));
    await stage.settle();
    expect([attachments.openedCount, attachments.openCount]).toEqual([1, 1]);
    expect(backend.callsOf("probe")).toHaveLength(1);
    expect(await stage.until(running)).toMatchObject({ status: "completed", stdout: "done\n" });
  });

  test("several callers that find one connection ended make one new one", async () => {
    const stage = newStage();
    const { fleet, attachments } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    attachments.failNext = [unreachable(lease.sandbox.id), unreachable(lease.sandbox.id)];
    const failed = [lease.sandbox.exec("true"), lease.sandbox.exec("true")];
    attachments.breakOff(lease.sandbox.id);
    await Promise.all(failed.map((one) => stage.refusal("sandbox_unreachable", one)));
    await stage.settle();
    expect([attachments.openedCount, attachments.openCount]).toEqual([2, 1]);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });

  test("unknown is not dead: a sandbox of unknown liveness is kept and probed again", async () => {
    const stage = newStage();
    const { fleet, attachments, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const { id } = lease.sandbox;
    const restore = backend.on("probe", async () => "unknown" as const);
    attachments.breakOff(id);
    await stage.advance(60_000);
    expect(fleet.get(id)).toBeDefined();
    expect(backend.callsOf("probe").length).toBeGreaterThan(1);
    expect(backend.callsOf("destroy")).toHaveLength(0);
    restore();
    await stage.advance(10_000);
    expect(attachments.openCount).toBe(1);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });

  test("a parked sandbox whose daemon speaks another protocol version is refused with that, once", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const attaches = backend.callsOf("attach").length;
    backend.fail("attach", new SandlotError("protocol_incompatible", { peer: "daemon", theirs: "2.0", ours: "1.0" }));
    const error = await stage.refusal("protocol_incompatible", fleet.acquire({ thread: "t1" }));
    expect(error.retryable).toBe(false);
    expect(backend.callsOf("attach")).toHaveLength(attaches + 1);
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
    expect(backend.callsOf("destroy")).toHaveLength(0);
  });

  test("a parked sandbox that does not answer is unreachable, not replaced", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const { id } = lease.sandbox;
    await lease.release();
    const restore = backend.fail("attach", unreachable(id));
    await stage.refusal("sandbox_unreachable", fleet.acquire({ thread: "t1" }));
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
    restore();
    await using again = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(again.sandbox.id).toBe(id);
    expect(again.recovery.kind).toBe("same");
  });
});

describe("while the engine hangs", () => {
  test("other threads, get, list and a release of the same thread go on", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const held = await fleet.acquire({ thread: "held" });
    const parked = await fleet.acquire({ thread: "parked" });
    await parked.release();
    const same = await fleet.acquire({ thread: "t1" });
    const gates = (["create", "probe", "destroy"] as const).map((name) => backend.hang(name));
    stage.killSandbox(same.sandbox.id);
    await stage.settle();
    const replaced = same.sandbox.exec("echo late");
    const creating = fleet.acquire({ thread: "new" });
    await stage.settle();
    const before = stage.time.now;
    expect(fleet.get(held.sandbox.id)).toBeDefined();
    expect((await held.sandbox.exec("echo on")).stdout).toBe("on\n");
    const other = await stage.until(fleet.acquire({ thread: "parked" }), 0);
    await stage.until(other.release(), 0);
    expect(await stage.until(fleet.list(), 0)).toHaveLength(4);
    await stage.until(same.release(), 0);
    expect(stage.time.now).toBe(before);
    for (const gate of gates) gate.open();
    await stage.refusal("lease_released", replaced);
    await (await stage.until(creating)).release();
    await held.release();
  });

  test("a release answers although the connection does not close", async () => {
    const stage = newStage();
    const { fleet, attachments } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    attachments.disturbClose = () => new Promise(() => undefined);
    await stage.until(lease.release(), 2_000);
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });
});

describe("errors while closing", () => {
  test.each([
    ["rejects", () => Promise.reject(new Error("broken pipe"))],
    [
      "throws",
      (): Promise<void> => {
        throw new Error("broken pipe");
      },
    ],
  ])("a connection whose closing %s blocks neither a release nor a destroy nor a shutdown", async (_, close) => {
    const stage = newStage();
    const { fleet, attachments } = await stage.open();
    attachments.disturbClose = close;
    const released = await fleet.acquire({ thread: "released" });
    await stage.until(released.release());
    expect((await stage.recordOf("released"))?.holders).toEqual({});
    const destroyed = await fleet.acquire({ thread: "destroyed" });
    expect(await stage.until(fleet.destroy({ thread: "destroyed" }, { force: true }))).toBe("stopped");
    await stage.until(destroyed.release());
    await fleet.acquire({ thread: "left" });
    await stage.until(fleet.close());
    expect((await stage.recordOf("left"))?.holders).toEqual({});
  });
});
