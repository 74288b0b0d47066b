/**
 * Pulling an image: a separate stage, with progress, shared by all waiting callers, abandoned when the last one leaves,
 * with a deadline.
 */

import { spawnSync } from "node:child_process";
import { isSandlotError } from "@sandlot/contract";
import { expect, it } from "vitest";
import type { EngineEvent } from "../../../src/backend/backend.ts";
import { settingsIn, world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";
import { type Registry, shellArchive, startRegistry } from "./registry.ts";

type Pulling = Extract<EngineEvent, { type: "image-pulling" }>;

const FILLER_BYTES = 2 * 1024 * 1024;

describeOnEngine("pulling an image", (onEngine, engine) => {
  it("is done once for all who wait, is told as it goes, and the image works", () =>
    onRegistry(async (registry) =>
      onEngine(async (stage) => {
        const told: Pulling[] = [];
        stage.backend.watch((event) => event.type === "image-pulling" && told.push(event));
        const blueprint = { ...stage.blueprint, image: registry.image };
        const both = [1, 2].map(() => stage.make(stage.newKey(), { blueprint }));
        await stage.eventually("its layer is asked for", () => registry.asked() > 0);
        await stage.eventually("bytes are told of", () => told.some(({ currentBytes }) => currentBytes > 0));
        registry.finish();
        const [made] = await Promise.all(both);
        expect(registry.asked()).toBe(1);
        expect(told.every(({ image }) => image === registry.image)).toBe(true);
        expect(told[0]).toMatchObject({ state: "started", currentBytes: 0 });
        expect(told.at(-1)).toMatchObject({ state: "pulled", problem: null });
        expect(told.filter(({ state }) => state === "pulled").length).toBe(1);
        expect(told.at(-1)?.totalBytes).toBeGreaterThan(FILLER_BYTES);
        if (made === undefined) throw new Error("nothing was made");
        const { sandbox } = await stage.attach(made.target);
        expect((await sandbox.exec("echo from the registry")).stdout).toBe("from the registry\n");
      }),
    ));

  it("is given up when nobody waits any more, and each may stop waiting by itself", () =>
    onRegistry(async (registry) =>
      onEngine(async (stage) => {
        const told: string[] = [];
        stage.backend.watch((event) => event.type === "image-pulling" && told.push(event.state));
        const blueprint = { ...stage.blueprint, image: registry.image };
        const callers = [new AbortController(), new AbortController()];
        const reasons = callers.map((_, index) => new Error(`caller ${index} has given up`));
        const both = callers.map(({ signal }, index) =>
          stage.rejectsWith(stage.backend.create(stage.spec(stage.newKey(), { blueprint }), signal), reasons[index]),
        );
        await stage.eventually("its layer is asked for", () => registry.waiting() > 0);
        callers[0]?.abort(reasons[0]);
        await both[0];
        await stage.pause(200);
        // The other still waits.
        expect(told).not.toContain("failed");
        callers[1]?.abort(reasons[1]);
        await both[1];
        await stage.eventually("it is told", () => told.includes("failed"));
        expect(await stage.refs()).toEqual([]);
      }),
    ));

  it("has a deadline of its own", () =>
    onRegistry(async (registry) =>
      onEngine(async (stage, harness) => {
        const { docker } = settingsIn(harness.home, harness.fleetId, engine, { pullTimeoutMs: 1_000 });
        const impatient = await harness.open({ docker });
        const startedAt = world.monotonicMs();
        const blueprint = { ...stage.blueprint, image: registry.image };
        const failure = await stage.make(stage.newKey(), { blueprint }, impatient).catch((error: unknown) => error);
        expect(isSandlotError(failure, "image_unavailable") && failure.details.problem).toMatch(/within 1000 ms/);
        expect(world.monotonicMs() - startedAt).toBeLessThan(10_000);
        expect(await stage.refs()).toEqual([]);
      }),
    ));

  it("of an image that no registry has is image_unavailable, in the registry's words", () =>
    onRegistry(async (registry) =>
      onEngine(async (stage) => {
        const told: Pulling[] = [];
        stage.backend.watch((event) => event.type === "image-pulling" && told.push(event));
        const blueprint = { ...stage.blueprint, image: registry.missing };
        await stage.rejects(stage.make(stage.newKey(), { blueprint }), "image_unavailable");
        expect(told.map(({ state }) => state)).toEqual(["started", "failed"]);
        expect(told.at(-1)?.problem).toMatch(/not found|unknown|does not exist/i);
        expect(await stage.refs()).toEqual([]);
      }),
    ));

  /** Each test uses another image name: the engine keeps pulled images. */
  async function onRegistry(run: (registry: Registry) => Promise<void>): Promise<void> {
    const libraries = spawnSync("ldd", ["/bin/dash"], { encoding: "utf8" })
      .stdout.split("\n")
      .flatMap((line) => /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1] ?? []);
    const registry = await startRegistry(await shellArchive(libraries, FILLER_BYTES), `pulled-${world.randomHex(4)}`);
    try {
      await run(registry);
    } finally {
      registry.close();
      await engine.docker
        .getImage(registry.image)
        .remove()
        .catch(() => {});
    }
  }
});
