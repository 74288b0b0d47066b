/**
 * The backend on gVisor: another kernel for every container. Its runtime shows sockets that containers make in shared
 * directories only when it was registered so; otherwise the backend notices that at once.
 */

import { describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { whatOpens } from "../closed-daemon.ts";
import { searchDeviations } from "../local/search-deviations.ts";
import {
  blueprint,
  containerOf,
  onStage,
  openHarness,
  settingsIn,
  type TestEngine,
  testEngine,
} from "./docker-harness.ts";
import { isWholeSuite, suiteTools } from "./suite-tools.ts";
import { usingEngine, withNetwork } from "./using-engine.ts";

/** Registered by the set-up of the tests' engine: with `--host-uds=all`, and without. */
const [SHOWS, HIDES] = ["runsc", "runsc-closed"] as const;
const NETWORK = `sandlot-test-gvisor-${process.pid}`;
const open: Blueprint = { ...blueprint, network: { mode: "open", allow: [] } };
/** How much longer than a start it may take to notice that sockets are invisible, and to remove everything. */
const NOTICED_MS = 2_000;
const TRIES = 3;

usingEngine("the docker backend on gVisor", await testGvisor(), (engine) => {
  withNetwork(engine, NETWORK);

  describeBackend({
    name: "docker on gVisor",
    tools: suiteTools(["lifecycle", "workspaces", "liveness", "exec ending", "files"]),
    blueprint,
    open: () => openHarness(engine, { runtime: SHOWS }),
    deviations: isWholeSuite ? searchDeviations : {},
  });

  describe("gVisor", () => {
    it("is what the sandbox runs on, without capabilities and with the limits of its blueprint", () =>
      onStage(
        engine,
        async (stage) => {
          const limits = { memoryBytes: 512 * 1024 * 1024, pidsMax: 64 };
          const made = await stage.make(stage.newKey(), { blueprint: { ...blueprint, limits } });
          const { HostConfig } = await engine.docker.getContainer(containerOf(made.created.ref)).inspect();
          expect(HostConfig).toMatchObject({ Runtime: SHOWS, Memory: limits.memoryBytes, PidsLimit: limits.pidsMax });
          const { sandbox } = await stage.attach(made.target);
          expect((await sandbox.exec("cat /proc/version")).stdout).toMatch(/^Linux version 4\.4\.0/);
          expect((await sandbox.exec("grep CapEff /proc/self/status")).stdout).toMatch(/:\s+0+\n/);
        },
        { docker: { runtime: SHOWS } },
      ));

    it("closes the memory of every process to all others, and shows what it shows of them all", () =>
      onStage(
        engine,
        async (stage) => {
          const lines = await whatOpens(await stage.sandbox());
          const shown = ["environ", "maps", "oom_score_adj, for writing", "fd"];
          const of = (whose: string) => shown.map((what) => `${whose} ${what}`);
          expect(lines.filter((line) => !line.startsWith("seen "))).toEqual(
            expect.arrayContaining([...of("own"), ...of("first"), ...of("daemon")]),
          );
          expect(lines.filter((line) => / mem/.test(line))).toEqual([]);
        },
        { docker: { runtime: SHOWS } },
      ));

    it("is for the blueprints that name it, whatever the fleet's other sandboxes run on", () =>
      onStage(engine, async (stage) => {
        const versionOf = async (of: Blueprint) => {
          const made = await stage.make(stage.newKey(), { blueprint: of });
          const { HostConfig } = await engine.docker.getContainer(containerOf(made.created.ref)).inspect();
          const { stdout } = await (await stage.attach(made.target)).sandbox.exec("cat /proc/version");
          return [HostConfig.Runtime, /^Linux version 4\.4\.0/.test(stdout)];
        };
        expect(await versionOf({ ...blueprint, runtime: SHOWS })).toEqual([SHOWS, true]);
        expect(await versionOf(blueprint)).toEqual(["runc", false]);
        // Its network is not the kernel's, so it has no egress, and the others keep theirs.
        await stage.rejects(
          stage.make(stage.newKey(), { blueprint: { ...open, runtime: SHOWS } }),
          "capability_missing",
        );
      }));

    it("that hides sockets is noticed at once, told by name with what to do about it, and leaves nothing", () =>
      onStage(engine, async (stage, harness) => {
        const backendOf = (runtime: string) =>
          harness.open({ docker: settingsIn(harness.home, harness.fleetId, engine, { runtime }).docker });
        const [shows, hides] = [await backendOf(SHOWS), await backendOf(HIDES)];
        // The backend notices it at once in one of three tries, however busy the machine is.
        for (let tries = 1; ; tries += 1) {
          const startMs = await stage.elapsedMs(() => stage.make(stage.newKey(), {}, shows));
          let error: unknown;
          const hiddenMs = await stage.elapsedMs(async () => {
            error = await stage.make(stage.newKey(), {}, hides).catch((thrown: unknown) => thrown);
          });
          expect(error).toMatchObject({ code: "isolation_unavailable", details: { backend: "docker" } });
          expect((error as { details: { fix: string } }).details.fix).toContain("--host-uds=all");
          expect((await stage.refs()).length).toBe(tries);
          console.log(`refused and removed after ${Math.round(hiddenMs)} ms; a start takes ${Math.round(startMs)} ms`);
          if (hiddenMs < startMs + NOTICED_MS) break;
          expect(tries).toBeLessThan(TRIES);
        }
      }));

    it("that hides sockets is reached by a port where the network is open", () =>
      onStage(
        engine,
        async (stage) => {
          const made = await stage.make();
          const { sandbox } = await stage.attach(made.target);
          expect((await sandbox.exec("echo by a port")).stdout).toBe("by a port\n");
          const { NetworkSettings } = await engine.docker.getContainer(containerOf(made.created.ref)).inspect();
          expect(Object.values(NetworkSettings.Ports).flat()).toMatchObject([{ HostIp: "127.0.0.1" }]);
        },
        { docker: { runtime: HIDES, network: NETWORK }, of: open },
      ));

    it("has no way out of ours, because its network is not the kernel's", () =>
      onStage(
        engine,
        async (stage) => {
          await stage.rejects(stage.make(stage.newKey(), { blueprint: open }), "capability_missing");
        },
        { docker: { runtime: SHOWS } },
      ));
  });
});

async function testGvisor(): Promise<TestEngine | { readonly reason: string }> {
  const engine = await testEngine();
  if ("reason" in engine) return engine;
  const { Runtimes } = await engine.docker.info();
  if (Runtimes?.[SHOWS] !== undefined && Runtimes[HIDES] !== undefined) return engine;
  await engine.release();
  return {
    reason: "the engine has no runtime runsc: install Debian's runsc from backports, and start the engine again",
  };
}
