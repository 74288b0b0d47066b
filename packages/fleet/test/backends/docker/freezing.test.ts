/** Containers that stand still for a checkpoint, beside other processes of the fleet. */

import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { containerOf, world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

describeOnEngine("a frozen container", (onEngine, { docker }) => {
  it("stays so although this and another process are attached, and goes on when it is thawed", () =>
    onEngine(async (stage, harness) => {
      const made = await stage.make();
      const { ref } = made.created;
      const status = async () => (await docker.getContainer(containerOf(ref)).inspect()).State.Status;
      const peer = await harness.peer();
      for (const backend of [stage.backend, peer]) backend.watch(() => {});
      const { sandbox } = await stage.attach(made.target);
      const other = await peer.attach(made.target, stage.signal);
      await stage.pause(300);
      const thaw = await stage.backend.freeze?.(ref, stage.signal);
      const asked = [sandbox.exec("echo one"), other.sandbox.exec("echo two")];
      await stage.pause(2_500);
      expect(await status()).toBe("paused");
      expect(await thaw?.()).toBe(true);
      expect((await Promise.all(asked)).map(({ stdout }) => stdout)).toEqual(["one\n", "two\n"]);
      expect(await status()).toBe("running");
      await other.close();
    }));

  it("whose process has died is thawed by another one, and by the next that opens", () =>
    onEngine(async (stage, harness) => {
      const made = await stage.make();
      const container = docker.getContainer(containerOf(made.created.ref));
      const status = async () => (await container.inspect()).State.Status;
      const frozen = join(harness.home, harness.fleetId, "frozen");
      mkdirSync(frozen, { recursive: true });
      const dead = { ...world.identity, pid: 2 ** 22 - 1, startTime: "1" };
      const freeze = async () => {
        writeFileSync(join(frozen, containerOf(made.created.ref)), JSON.stringify(dead));
        await container.pause();
      };
      await freeze();
      const peer = await harness.peer();
      peer.watch(() => {});
      await stage.eventually("it goes on", async () => (await status()) === "running");
      expect(readdirSync(frozen)).toEqual([]);
    }));
});
