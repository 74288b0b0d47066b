/** Paused containers: by their fleet while they are unused, or by hand. */

import type { EngineRef } from "@sandlot/contract";
import type Docker from "dockerode";
import { expect, it } from "vitest";
import { containerOf, settingsIn, world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

const stateOf = async (docker: Docker, ref: EngineRef) =>
  (await docker.getContainer(containerOf(ref)).inspect()).State.Status;

describeOnEngine("a container that stands still", (onEngine, engine) => {
  const { docker } = engine;
  const pauseParked = { ...settingsIn("/", "none" as never, engine).docker, pauseParked: true };

  it("was used by nobody, did nothing, and goes on for whoever comes back", { timeout: 60_000 }, () =>
    onEngine(async (stage, harness) => {
      const orphanTimeoutMs = 3_000;
      const backend = await harness.open({ docker: pauseParked, orphanTimeoutMs });
      backend.watch(() => {});
      const made = await stage.make(stage.newKey(), {}, backend);
      const { ref } = made.created;
      const isPaused = async () => (await stateOf(docker, ref)) === "paused";
      const first = await backend.attach(made.target, stage.signal);
      await first.sandbox.exec("sleep 60 > /dev/null 2>&1 &", { execId: "work" });
      await stage.pause(2_500);
      expect(await isPaused(), "while it is held").toBe(false);
      await first.close();
      await stage.pause(2_300);
      expect(await isPaused(), "while something runs").toBe(false);
      const second = await backend.attach(made.target, stage.signal);
      await second.sandbox.execs.kill("work");
      await second.close();
      await stage.eventually("it is paused", isPaused);
      const askedAt = world.monotonicMs();
      expect(await backend.probe(ref, stage.signal)).toBe("alive");
      expect(await backend.activity(ref, stage.signal)).toMatchObject({ runningExecs: 0, cpuShare: 0 });
      expect(world.monotonicMs() - askedAt).toBeLessThan(2_000);
      // The fleet cannot renew it meanwhile, which does not make it an orphan.
      await stage.pause(2 * orphanTimeoutMs);
      const third = await backend.attach(made.target, stage.signal);
      expect((await third.sandbox.exec("echo back")).stdout).toBe("back\n");
      expect(await isPaused()).toBe(false);
      await third.close();
    }),
  );

  it("by somebody's hand does not keep its holder waiting, nor one who comes", () =>
    onEngine(async (stage, harness) => {
      const made = await stage.make();
      const { ref } = made.created;
      stage.backend.watch(() => {});
      const { sandbox } = await stage.attach(made.target);
      await stage.pause(300);
      await docker.getContainer(containerOf(ref)).pause();
      expect((await sandbox.exec("echo held")).stdout).toBe("held\n");
      expect(await stateOf(docker, ref)).toBe("running");
      // An instance without the event finds out when it gets no response.
      const deaf = await harness.peer();
      const parked = await stage.make(stage.newKey(), {}, deaf);
      await docker.getContainer(containerOf(parked.created.ref)).pause();
      const attachment = await deaf.attach(parked.target, stage.signal);
      expect((await attachment.sandbox.exec("echo came")).stdout).toBe("came\n");
      await attachment.close();
    }));

  it("is not paused where that is not configured", () =>
    onEngine(async (stage) => {
      const made = await stage.make();
      stage.backend.watch(() => {});
      await (await stage.attach(made.target)).close();
      await stage.pause(3_000);
      expect(await stateOf(docker, made.created.ref)).toBe("running");
    }));
});
