/**
 * Disk budgets of containers: the workspace is the host's, and so is the watch over it.
 */

import { expect, it } from "vitest";
import { hashBlueprint } from "../../../src/backend/blueprint.ts";
import { describeOnEngine } from "./on-engine.ts";

const MIB = 1024 * 1024;
const WORKSPACE = "/mnt/user-data/workspace";

describeOnEngine("a disk budget", (onEngine) => {
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
        // Each file is within the limit of one, all of them together are not.
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
        // It is the same sandbox, and works on.
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
      const made = await stage.make(stage.newKey(), { blueprint: small.blueprint }, maker);
      const unlimited = { ...stage.blueprint, limits: {} };
      const none = { name: "default", hash: hashBlueprint("docker", unlimited), blueprint: unlimited };
      for (const blueprint of [named(64 * MIB), none]) {
        const later = await harness.open({ blueprints: { default: blueprint } });
        const attachment = await later.attach(made.target, stage.signal);
        const large = attachment.sandbox.files.write(`${WORKSPACE}/large`, Buffer.alloc(40 * MIB));
        await stage.rejects(large, "disk_limit_exceeded");
        const many = "for i in $(seq 1 40); do dd if=/dev/zero of=part$i bs=1M count=8 2>/dev/null; done";
        const stopped = await attachment.sandbox.exec(many, { timeoutMs: 30_000 });
        expect(stopped.stderr).toContain("disk_limit_exceeded");
        await attachment.sandbox.exec("rm -f part*");
        await attachment.close();
      }
    }),
  );
});
