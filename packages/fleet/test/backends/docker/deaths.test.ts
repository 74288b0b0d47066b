/** How a container's death is noticed, what a supposed death leaves usable, and what a peer finds afterwards. */

import type { EngineRef } from "@sandlot/contract";
import { expect, it } from "vitest";
import type { Backend, EngineEvent } from "../../../src/backend/backend.ts";
import { hashBlueprint } from "../../../src/backend/blueprint.ts";
import { containerOf, world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

/** The engine reports a death when it has noticed it itself. */
const NOTICED_MS = 1_000;

describeOnEngine("a death of a container", (onEngine, { docker }) => {
  it("is told to whoever made it and to whoever found it, soon and once", () =>
    onEngine(async (stage, harness) => {
      const made = await stage.make();
      const finder = await harness.peer();
      const heard = [stage.backend, finder].map((backend) => listen(backend, made.created.ref));
      await stage.pause(300);
      const killedAt = world.monotonicMs();
      await harness.kill(made.created.ref);
      const delays = await Promise.all(heard.map(async ({ first }) => (await first) - killedAt));
      console.log(`noticed after ${delays.map((ms) => `${ms.toFixed(1)} ms`).join(" (maker) and ")} (finder)`);
      for (const delay of delays) expect(delay).toBeLessThan(NOTICED_MS);
      await stage.destroy(made);
      await stage.pause(200);
      for (const { count } of heard) expect(count()).toBe(1);
    }));

  it("by hand (docker rm -f) is told, probed, listed as dead, and destroyed without a trace", () =>
    onEngine(async (stage) => {
      const made = await stage.make();
      const { first } = listen(stage.backend, made.created.ref);
      await stage.pause(300);
      await docker.getContainer(containerOf(made.created.ref)).remove({ force: true });
      await first;
      expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("dead");
      const listed = await stage.backend.list({ consistent: true }, stage.signal);
      expect(listed.map(({ ref, liveness }) => [ref, liveness])).toEqual([[made.created.ref, "dead"]]);
      await stage.rejects(stage.attach(made.target), "sandbox_lost");
      await stage.destroy(made);
      expect(await stage.refs()).toEqual([]);
    }));

  it("is none when the container is paused", () =>
    onEngine(async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      const container = docker.getContainer(containerOf(made.created.ref));
      await container.pause();
      expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("alive");
      await container.unpause();
      expect((await sandbox.exec("echo back")).stdout).toBe("back\n");
      await container.pause();
      await stage.destroy(made);
    }));

  it("of the daemon alone is none: the sandbox gets another one, with what it was rebound to", () =>
    onEngine(async (stage) => {
      const blank = await stage.make(null);
      const target = { ...blank.target, generation: stage.nextGeneration(), token: stage.newToken() };
      await stage.backend.rebind(target, blank.spec, stage.signal);
      const attachment = await stage.attach(target);
      await attachment.sandbox.files.write("/tmp/note", "kept");
      await attachment.sandbox.exec("kill -9 -1", { cwd: "/tmp" }).catch(() => {});
      await attachment.closed;
      expect(await stage.backend.probe(blank.created.ref, stage.signal)).toBe("alive");
      const again = await stage.attach(target);
      expect(await again.sandbox.files.readText("/tmp/note")).toBe("kept");
      await stage.rejects(stage.attach(blank.target), "stale_generation");
    }));

  it("of the daemon does not lead the fleet to a socket that the sandbox chose", () =>
    onEngine(async (stage, harness) => {
      const made = await stage.make();
      const { sandbox, closed } = await stage.attach(made.target);
      const lure = `${harness.home}/lure.sock`;
      let lured = 0;
      const { createServer } = await import("node:net");
      const server = createServer((socket) => {
        lured += 1;
        socket.destroy();
      });
      await new Promise<void>((resolve) => server.listen(lure, resolve));
      // The link exists before the daemon: a host that connected in there would follow it.
      await sandbox.exec(["sh", "-c", `ln -s ${lure} /run/sandlot/s/d; kill -9 -1`]).catch(() => {});
      await closed;
      const again = await stage.attach(made.target).catch((error: unknown) => error);
      expect(lured).toBe(0);
      // Its daemon finds a foreign file at the socket's path, and may give up.
      expect(again).toBeDefined();
      server.close();
    }));

  it("comes by itself when nobody has asked for the orphan timeout, and not while the fleet is there", () =>
    onEngine(async (stage, harness) => {
      const orphanTimeoutMs = 1_500;
      const maker = await harness.open({ orphanTimeoutMs });
      const made = await stage.make(stage.newKey(), {}, maker);
      await stage.pause(3 * orphanTimeoutMs);
      expect(await maker.probe(made.created.ref, stage.signal)).toBe("alive");
      await maker.close();
      await stage.eventually("it has ended", async () => {
        return (await stage.backend.probe(made.created.ref, stage.signal)) === "dead";
      });
    }));

  it("for want of memory ends a command, not the sandbox, and is told with the command's own words", () =>
    onEngine(async (stage, harness) => {
      const blueprint = { ...stage.blueprint, limits: { memoryBytes: 192 * 1024 * 1024, pidsMax: 64 } };
      const hash = hashBlueprint("docker", blueprint);
      const backend = await harness.open({ blueprints: { default: { name: "default", hash, blueprint } } });
      const hits: { limit: string; because: string }[] = [];
      backend.watch((event) => {
        if (event.type === "limit-hit" && event.sandboxId === made.target.sandboxId) hits.push(event);
      });
      const made = await stage.make(stage.newKey(), { blueprint }, backend);
      const attachment = await backend.attach(made.target, stage.signal);
      const { sandbox } = attachment;
      const large = await sandbox.exec(["perl", "-e", "my $x = 'x' x (512 * 1024 * 1024); print length $x"]);
      expect(large.exitCode === 0).toBe(false);
      expect((await sandbox.exec("echo still here")).stdout).toBe("still here\n");
      await stage.eventually("it was told", async () => hits.some(({ limit }) => limit === "memory"));
      const told = hits.filter(({ limit }) => limit === "memory").map(({ because }) => because);
      expect(told).toEqual([expect.stringContaining(String(192 * 1024 * 1024))]);
      expect(large.stderr).toContain(told[0]);

      // A plain shell ends when it cannot fork.
      const many = await sandbox.exec(["sh", "-c", "for i in $(seq 1 80); do sleep 5 & done"], { timeoutMs: 20_000 });
      await stage.eventually("that was told, too", async () => hits.some(({ limit }) => limit === "pids"));
      expect(many.exitCode === 0).toBe(false);
      expect(many.stderr).toContain("the sandbox may have 64");
      expect((await sandbox.usage()).memoryMaxBytes).toBe(192 * 1024 * 1024);
      await attachment.close();
    }));
});

function listen(backend: Backend, ref: EngineRef): { first: Promise<number>; count: () => number } {
  let count = 0;
  const first = new Promise<number>((resolve) => {
    backend.watch((event: EngineEvent) => {
      if (event.type !== "died" || event.ref !== ref) return;
      count += 1;
      resolve(world.monotonicMs());
    });
  });
  return { first, count: () => count };
}
