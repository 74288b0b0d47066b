/**
 * The backend on Podman's API.
 */

import { describe, expect, it } from "vitest";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { searchDeviations } from "../local/search-deviations.ts";
import { claimedUid } from "../own-accounts.ts";
import { blueprint, containerOf, onStage, openHarness } from "./docker-harness.ts";
import { testPodman } from "./podman-engine.ts";
import { isWholeSuite, suiteTools } from "./suite-tools.ts";
import { usingEngine } from "./using-engine.ts";

usingEngine("the docker backend on Podman", await testPodman(), (engine) => {
  describeBackend({
    name: "docker on Podman",
    tools: suiteTools(["lifecycle", "attaching", "workspaces", "liveness", "exec ending", "files"]),
    blueprint,
    open: () => openHarness(engine),
    deviations: isWholeSuite ? searchDeviations : {},
  });

  describe("Podman", () => {
    it("hardens a container as Docker does", () =>
      onStage(engine, async (stage, harness) => {
        const limits = { memoryBytes: 512 * 1024 * 1024, pidsMax: 64 };
        const made = await stage.make(stage.newKey(), { blueprint: { ...blueprint, limits } });
        const { HostConfig } = await engine.docker.getContainer(containerOf(made.created.ref)).inspect();
        expect(HostConfig).toMatchObject({
          ...{ Memory: limits.memoryBytes, PidsLimit: limits.pidsMax, ReadonlyRootfs: true, NetworkMode: "none" },
          Privileged: false,
        });
        const { sandbox } = await stage.attach(made.target);
        expect((await sandbox.exec("grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status")).stdout).toBe(
          "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n",
        );
        const uid = claimedUid(harness, made);
        expect((await sandbox.exec("id -u; echo x > /usr/x || echo read-only; ls -A /sys/class/net")).stdout).toBe(
          `${uid}\nread-only\nlo\n`,
        );
        const other = await stage.make();
        const { sandbox: neighbour } = await stage.attach(other.target);
        const uids = [uid, Number((await neighbour.exec("id -u")).stdout)];
        expect(uids[1]).toBe(claimedUid(harness, other));
        expect(new Set(uids).size).toBe(process.getuid?.() === 0 ? 2 : 1);
      }));
  });
});
