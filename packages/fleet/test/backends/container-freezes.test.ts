/** Freezes of containers by the processes of a fleet, against an engine that pauses. */

import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ContainerFreezes } from "../../src/backends/docker/container-freezes.ts";
import type { ContainerInspection } from "../../src/backends/docker/engine/engine.ts";
import { EngineRefusal } from "../../src/backends/docker/engine/trouble.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { Liveness, ProcessIdentity, World } from "../../src/world/world.ts";

const ID = "abc123";
const never = new AbortController().signal;

class FakeEngine {
  status: "running" | "paused" = "running";
  readonly calls: string[] = [];
  refuseUnpause = 0;

  async pause(): Promise<void> {
    if (this.status === "paused") throw new EngineRefusal(409, "already paused");
    this.calls.push("pause");
    this.status = "paused";
  }
  async unpause(): Promise<void> {
    if (this.refuseUnpause-- > 0) throw new Error("the engine is away");
    if (this.status === "running") throw new EngineRefusal(409, "not paused");
    this.calls.push("unpause");
    this.status = "running";
  }
  async inspect(): Promise<ContainerInspection> {
    return { State: { Status: this.status } } as ContainerInspection;
  }
}

/** Processes of one machine: each has an identity, and `lives` says what the others see of it. */
function machine() {
  const root = mkdtempSync(join(tmpdir(), "sandlot-freezes-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  const directory = join(root, "frozen");
  const engine = new FakeEngine();
  const lives = new Map<number, Liveness>();
  const process = (pid: number) => {
    lives.set(pid, "alive");
    const real = systemWorld();
    const world: World = Object.assign(Object.create(real) as World, {
      identity: { ...real.identity, pid },
      processLiveness: (identity: ProcessIdentity) => lives.get(identity.pid) ?? "dead",
      timer: (ms: number, fire: () => void) => real.timer(Math.min(ms, 20), fire, { background: true }),
    });
    return new ContainerFreezes({ world, engine, directory });
  };
  const marks = () => readdirSync(directory);
  return { directory, engine, lives, process, marks };
}

test("a container is paused until it is thawed, and only then another process has its turn", async () => {
  const { engine, process, marks } = machine();
  const [one, two] = [process(1), process(2)];
  const thaw = await one.freeze(ID, never);
  expect([engine.status, one.isHeld(ID), two.isHeld(ID), two.left()]).toEqual(["paused", true, true, []]);
  let isNext = false;
  const next = two.freeze(ID, never).then((thawNext) => {
    isNext = true;
    return thawNext;
  });
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(isNext).toBe(false);
  expect(await thaw()).toBe(true);
  expect(await (await next)()).toBe(true);
  expect([engine.calls, engine.status, marks()]).toEqual([["pause", "unpause", "pause", "unpause"], "running", []]);
});

test("a caller that waits for another's freeze can leave", async () => {
  const { process, engine } = machine();
  const thaw = await process(1).freeze(ID, never);
  const controller = new AbortController();
  const waiting = process(2).freeze(ID, controller.signal);
  const refused = expect(waiting).rejects.toThrow("enough");
  controller.abort(new Error("enough"));
  await refused;
  await thaw();
  expect(engine.status).toBe("running");
});

test("the freeze of a dead process is ended by another one, and by the next freeze", async () => {
  const { engine, lives, process, marks } = machine();
  const [one, two] = [process(1), process(2)];
  await one.freeze(ID, never);
  await two.thawLeft(ID);
  expect(engine.status).toBe("paused");
  lives.set(1, "dead");
  expect([two.isHeld(ID), two.left()]).toEqual([false, [ID]]);
  await two.thawLeft(ID);
  expect([engine.status, two.left(), marks()]).toEqual(["running", [], []]);
  await process(3).freeze(ID, never);
  lives.set(3, "dead");
  expect(await (await two.freeze(ID, never))()).toBe(true);
  expect([engine.status, marks()]).toEqual(["running", []]);
});

test("a process that cannot be seen lives as long as it renews its mark", async () => {
  const { directory, engine, lives, process } = machine();
  const two = process(2);
  await process(1).freeze(ID, never);
  lives.set(1, "unknown");
  expect(two.isHeld(ID)).toBe(true);
  writeFileSync(join(directory, "def456"), JSON.stringify({ ...systemWorld().identity, pid: 1 }));
  utimesSync(join(directory, "def456"), 1, 1);
  expect(two.left()).toEqual(["def456"]);
  expect(engine.status).toBe("paused");
});

test("a thaw says whether something ran: by the engine's word, and by what it finds", async () => {
  const { engine, process } = machine();
  const one = process(1);
  const first = await one.freeze(ID, never);
  // Of the time before the pause.
  one.heardRunning(ID);
  one.heardPaused(ID);
  expect(await first()).toBe(true);
  const second = await one.freeze(ID, never);
  one.heardPaused(ID);
  one.heardRunning(ID);
  expect(await second()).toBe(false);
  const third = await one.freeze(ID, never);
  engine.status = "running";
  expect(await third()).toBe(false);
  expect(engine.status).toBe("running");
});

test("a thaw that the engine does not take is tried again; a container that was paused before stays so", async () => {
  const { engine, process, marks } = machine();
  const one = process(1);
  const thaw = await one.freeze(ID, never);
  engine.refuseUnpause = 2;
  await expect(thaw()).rejects.toThrow("the engine is away");
  await expect.poll(() => [engine.status, marks().length]).toEqual(["running", 0]);
  engine.status = "paused";
  expect(await (await one.freeze(ID, never))()).toBe(true);
  expect([engine.status, marks()]).toEqual(["paused", []]);
});
