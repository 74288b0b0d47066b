/** After a loss: the lease's report, the notified callers, and the objects that still work. */

import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";
import { catchingUncaught } from "../support/uncaught.ts";

const WORKSPACE = "/mnt/user-data/workspace";

describe("recovery says what a lease got", () => {
  test("empty for a new thread", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    expect(lease.recovery).toEqual({ kind: "empty", lost: [], survived: [] });
  });

  test("same for a parked sandbox, with everything in it", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const first = await fleet.acquire({ thread: "t1" });
    await first.sandbox.exec("echo x > /tmp/scratch");
    await first.release();
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(lease.recovery.kind).toBe("same");
    expect(lease.recovery.lost).toEqual([]);
    expect(lease.recovery.survived).toEqual(expect.arrayContaining(["processes", "temporary files", "workspace"]));
    expect(await lease.sandbox.files.readText("/tmp/scratch")).toBe("x\n");
  });

  test("restored after a crash, and what it names as lost is lost and as survived is there", async () => {
    const stage = newStage({ checkpoints: { automatic: false } });
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec(`echo kept > ${WORKSPACE}/kept; echo lost > /tmp/lost; echo installed > ~/program`);
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    expect((await stage.until(lease.sandbox.exec("cat ~/program"))).stdout).toBe("installed\n");
    expect(lease.recovery).toEqual({
      kind: "restored",
      lost: ["processes", "temporary files"],
      survived: ["installed packages", "workspace"],
    });
    expect(await lease.sandbox.files.readText(`${WORKSPACE}/kept`)).toBe("kept\n");
    await stage.refusal("file_not_found", lease.sandbox.files.readText("/tmp/lost"));
  });

  test("restored without installed packages where the home is temporary", async () => {
    const stage = newStage({
      blueprints: { default: { home: "temporary" } },
      checkpoints: { automatic: false },
    });
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec("echo kept > kept; echo installed > ~/program");
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    expect((await stage.until(lease.sandbox.exec("cat kept ~/program"))).stdout).toBe("kept\n");
    expect(lease.recovery).toEqual({
      kind: "restored",
      lost: ["processes", "temporary files", "installed packages"],
      survived: ["workspace"],
    });
  });

  const sizes = { blueprints: { big: { environment: { SIZE: "big" } }, small: {} } };

  test("restored after a crash, from the blueprint that the lease had", async () => {
    const stage = newStage(sizes);
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1", blueprint: "big" });
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    expect((await stage.until(lease.sandbox.exec("echo $SIZE"))).stdout).toBe("big\n");
    expect(lease.blueprint).toBe("big");
  });

  test("nothing where the thread meanwhile lives on another blueprint", async () => {
    const stage = newStage(sizes);
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1", blueprint: "big" });
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    await using other = await stage.until(fleet.acquire({ thread: "t1", blueprint: "small" }));
    const refused = await stage.refusal("blueprint_mismatch", lease.sandbox.exec("true"));
    expect(refused.details).toEqual({ thread: "t1", wanted: "big", actual: "small" });
    expect((await other.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("restored for a thread that comes back after its sandbox was ended", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    expect(await stage.until(fleet.destroy({ thread: "t1" }))).toBe("stopped");
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(lease.recovery.kind).toBe("restored");
  });

  test("empty for one that was only warmed and never used", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await stage.until(fleet.warm({ thread: "t1" }));
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(first.recovery.kind).toBe("empty");
    await first.sandbox.exec("true");
    await first.release();
    await stage.until(fleet.destroy({ thread: "t1" }));
    await stage.until(fleet.warm({ thread: "t1" }));
    await using second = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(second.recovery.kind).toBe("restored");
  });

  test("restored also when the thread's workspace moves into a blank", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet, eventsOf } = await stage.open();
    await stage.settle();
    const first = await fleet.acquire({ thread: "t1" });
    expect(first.recovery.kind).toBe("empty");
    await first.sandbox.files.write(`${WORKSPACE}/kept`, "kept");
    await first.release();
    expect(await stage.until(fleet.destroy({ thread: "t1" }))).toBe("stopped");
    await stage.advance(6_000);
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(eventsOf("lease-acquired").map(({ path }) => path)).toEqual(["blank", "blank"]);
    expect(lease.recovery.kind).toBe("restored");
    expect(await lease.sandbox.files.readText(`${WORKSPACE}/kept`)).toBe("kept");
  });
});

describe("generations", () => {
  test("an old sandbox object answers stale_generation after the lease has moved on", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const old = lease.sandbox;
    stage.killSandbox(old.id);
    await stage.settle();
    await stage.until(lease.sandbox.exec("true"));
    const error = await stage.refusal("stale_generation", old.exec("true"));
    expect(error.details).toEqual({ sandboxId: old.id, generation: old.generation, current: lease.generation });
    await stage.refusal("stale_generation", old.files.list("/"));
    expect(lease.sandbox).not.toBe(old);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("a sandbox found with get answers sandbox_lost after a crash, and stale_generation after the next one was made", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const seen = fleet.get(lease.sandbox.id);
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    const error = await stage.refusal("sandbox_lost", seen!.exec("true"));
    expect(error.details.reason).toBe("crashed");
    await stage.until(lease.sandbox.exec("true"));
    await stage.refusal("stale_generation", seen!.exec("true"));
  });

  test("grow with every crash, and all leases of a lost sandbox share the next one", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await using a = await fleet.acquire({ thread: "t1" });
    await using b = await fleet.acquire({ thread: "t1" });
    const seen = [a.generation];
    for (let crash = 0; crash < 3; crash += 1) {
      stage.killSandbox(a.sandbox.id);
      await stage.settle();
      await stage.until(Promise.all([a.sandbox.exec("true"), b.sandbox.exec("true"), a.sandbox.exec("true")]));
      expect(a.generation).toBe(b.generation);
      seen.push(a.generation);
    }
    expect(seen).toEqual([...seen].sort((x, y) => x - y));
    expect(new Set(seen).size).toBe(4);
    expect(backend.callsOf("create")).toHaveLength(4);
  });

  test("a lease released while its next generation is being made leaves no holder", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    const gate = backend.hang("create");
    const use = lease.sandbox.exec("true");
    const refused = stage.refusal("lease_released", use);
    await stage.settle();
    await lease.release();
    gate.open();
    await refused;
    await stage.advance(1_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
  });
});

describe("onLost", () => {
  test("is called once, with the reason and the generation", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const { generation } = lease;
    const losses: unknown[] = [];
    lease.onLost((loss) => losses.push(loss));
    const running = Promise.allSettled([lease.sandbox.exec("sleep 60"), lease.sandbox.exec("sleep 70")]);
    await stage.settle();
    stage.killSandbox(lease.sandbox.id);
    await stage.advance(20_000);
    await running;
    expect(losses).toEqual([{ reason: "crashed", generation }]);
  });

  test("can be taken back", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const heard: string[] = [];
    const stop = lease.onLost(() => heard.push("stopped"));
    lease.onLost(() => heard.push("kept"));
    stop();
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    expect(heard).toEqual(["kept"]);
  });

  test("a listener that throws disturbs neither the others nor the fleet, and the process hears of it", async () => {
    const stage = newStage();
    const { fleet, events } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const heard: string[] = [];
    const uncaught = await catchingUncaught(async () => {
      fleet.events.on(() => {
        throw new Error("bad event listener");
      }, "sandbox-lost");
      lease.onLost(() => {
        throw new Error("bad listener");
      });
      lease.onLost(() => heard.push("told"));
      stage.killSandbox(lease.sandbox.id);
      await stage.settle();
    });
    expect(heard).toEqual(["told"]);
    expect(uncaught.map(String).sort()).toEqual(["Error: bad event listener", "Error: bad listener"]);
    expect((await stage.until(lease.sandbox.exec("true"))).exitCode).toBe(0);
    expect(events.filter(({ type }) => type === "lease-lost")).toHaveLength(1);
  });

  test("is called again for the next generation's loss", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const generations: number[] = [];
    lease.onLost(({ generation }) => generations.push(generation));
    const first = lease.generation;
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    await stage.until(lease.sandbox.exec("true"));
    const second = lease.generation;
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    expect(generations).toEqual([first, second]);
  });
});
