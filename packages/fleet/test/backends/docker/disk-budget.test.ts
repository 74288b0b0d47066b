/** Disk budgets of containers: the host owns the workspace, and watches it. */

import { expect, it } from "vitest";
import { hashBlueprint } from "../../../src/backend/blueprint.ts";
import { parseRef } from "../../../src/backends/docker/objects/labels.ts";
import { containerGroup } from "../../../src/host/limits/container-group.ts";
import { holdStill, withoutDaemon } from "../../../src/host/limits/disk/hold.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { describeOnEngine } from "./on-engine.ts";

const world = systemWorld();
const isRoot = process.getuid?.() === 0;
const MIB = 1024 * 1024;
const WORKSPACE = "/mnt/user-data/workspace";

describeOnEngine("a disk budget", (onEngine, engine) => {
  it(
    "refuses what is written through the API beyond it, and stops commands that write past it",
    { timeout: 90_000 },
    () =>
      onEngine(async (stage, harness) => {
        const blueprint = { ...stage.blueprint, limits: { diskBytes: 32 * MIB, filesMax: 200 } };
        const hash = hashBlueprint("docker", blueprint);
        const blueprints = { default: { name: "default", hash, blueprint } };
        const backend = await harness.open({ blueprints });
        const made = await stage.make(stage.newKey(), { blueprint }, backend);
        const attachment = await backend.attach(made.target, stage.signal);
        const { sandbox } = attachment;
        await sandbox.files.write(`${WORKSPACE}/fits`, Buffer.alloc(MIB));
        await stage.rejects(sandbox.files.write(`${WORKSPACE}/large`, Buffer.alloc(40 * MIB)), "disk_limit_exceeded");
        // Each file is within the limit of one file; all together exceed the budget.
        const many = "for i in $(seq 1 40); do dd if=/dev/zero of=part$i bs=1M count=8 2>/dev/null; done";
        const stopped = await sandbox.exec(many, { timeoutMs: 30_000 });
        expect(stopped.exitCode).not.toBe(0);
        expect(stopped.stderr).toContain("disk_limit_exceeded");
        await sandbox.exec("rm -f part*");
        const bytes = async () => (await sandbox.exec("du -sm . | cut -f1")).stdout;
        expect(Number(await bytes())).toBeLessThan(32);
        const endless = "mkdir many; i=0; while :; do i=$((i+1)); : > many/$i; done";
        const files = await sandbox.exec(endless, { timeoutMs: 30_000 });
        expect(files.stderr).toContain("disk_limit_exceeded");
        await sandbox.exec("rm -rf many");
        // It is the same sandbox, and still works.
        await stage.eventually("there is room again", async () => {
          return sandbox.files.write(`${WORKSPACE}/after`, "x").then(
            () => true,
            () => false,
          );
        });
        await attachment.close();
      }),
  );

  it("is kept for a container whose blueprint is configured otherwise meanwhile", { timeout: 90_000 }, () =>
    onEngine(async (stage, harness) => {
      const named = (diskBytes: number) => {
        const blueprint = { ...stage.blueprint, limits: { diskBytes } };
        return { name: "default", hash: hashBlueprint("docker", blueprint), blueprint };
      };
      const small = named(32 * MIB);
      const maker = await harness.open({ blueprints: { default: small } });
      const unlimited = { ...stage.blueprint, limits: {} };
      const none = { name: "default", hash: hashBlueprint("docker", unlimited), blueprint: unlimited };
      for (const blueprint of [named(64 * MIB), none]) {
        const made = await stage.make(stage.newKey(), { blueprint: small.blueprint }, maker);
        const later = await harness.open({ blueprints: { default: blueprint } });
        const attachment = await later.attach(made.target, stage.signal);
        // Each is within the limit of one file, which the kernel enforces; all together exceed the budget.
        const { files } = attachment.sandbox;
        for (const name of ["one", "two", "three"]) await files.write(`${WORKSPACE}/${name}`, Buffer.alloc(9 * MIB));
        await stage.rejects(files.write(`${WORKSPACE}/four`, Buffer.alloc(9 * MIB)), "disk_limit_exceeded");
        await attachment.close();
      }
    }),
  );

  it("holds a container's commands still, whatever wakes them, and not its daemon", { timeout: 90_000 }, (context) =>
    onEngine(async (stage) => {
      if (!isRoot) return context.skip("an ordinary user may not move the engine's processes");
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      await sandbox.spawn(["sh", "-c", "(while :; do kill -CONT -1; done) & while :; do echo x >> written; done"]);
      const written = async () => (await sandbox.files.stat(`${WORKSPACE}/written`)).sizeBytes;
      await stage.eventually("it writes", () =>
        written()
          .then((bytes) => bytes > 0)
          .catch(() => false),
      );
      const { State } = await engine.docker.getContainer(parseRef(made.created.ref)?.containerId ?? "").inspect();
      const group = containerGroup("held", State.Pid);
      const held = await holdStill(() => withoutDaemon(group.processes() ?? [], [State.Pid]), world);
      const before = await written();
      await stage.pause(300);
      expect(await written()).toBe(before);
      expect(held?.release()).toBe(true);
      await stage.eventually("it goes on", async () => (await written()) > before);
      expect((await sandbox.exec("cat /proc/self/cgroup")).stdout).not.toContain("sandlot-held");
    }),
  );
});
