/**
 * An engine that is killed and restarted: no sandbox counts as dead while the engine is unreachable, and afterwards
 * every listener gets the signal to re-list.
 */

import { expect, it, vi } from "vitest";
import { crashTestEngine, startTestEngine } from "../../../../../scripts/docker-test-engine.mjs";
import type { EngineEvent } from "../../../src/backend/backend.ts";
import { world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

// The engine of the other tests must keep running.
vi.hoisted(() => {
  process.env.SANDLOT_TEST_ENGINE = "-crash";
});

describeOnEngine("an engine that was killed", (onEngine) => {
  it("means unknown while it is gone, what is held works on, and then everybody looks", { timeout: 180_000 }, () =>
    onEngine(async (stage, harness) => {
      const made = await stage.make();
      const { sandbox, closed } = await stage.attach(made.target);
      const heard: EngineEvent["type"][] = [];
      stage.backend.watch(({ type }) => heard.push(type));
      await stage.pause(300);
      await crashTestEngine();
      try {
        await stage.eventually("the break was told", () => heard.includes("resync"));
        expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("unknown");
        await stage.rejects(stage.destroy(made), "engine_unavailable");
        await stage.rejects(stage.backend.list({ consistent: true }, stage.signal), "engine_unavailable");
        await stage.rejects(stage.make(), "engine_unavailable");
        expect((await sandbox.exec("echo works on")).stdout).toBe("works on\n");
        expect(heard.includes("died")).toBe(false);
      } finally {
        await startTestEngine();
      }
      const startedAt = world.monotonicMs();
      // Without its live-restore option this engine ends the containers of its last run.
      await closed;
      await stage.eventually("its death is seen", async () => {
        return (await stage.backend.probe(made.created.ref, stage.signal)) === "dead";
      });
      await stage.destroy(made);
      const next = await stage.make();
      expect((await (await stage.attach(next.target)).sandbox.exec("echo usable")).stdout).toBe("usable\n");
      console.log(`usable ${Math.round(world.monotonicMs() - startedAt)} ms after the engine was back`);
      // The subscription is back, too.
      heard.length = 0;
      await harness.kill(next.created.ref);
      await stage.eventually("a death is heard again", () => heard.includes("died"));
    }),
  );
});
