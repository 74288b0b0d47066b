/** Creating containers: an obstacle gives a named error within its time, and nothing half-made stays. */

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { pack } from "tar-stream";
import { expect, it } from "vitest";
import { installed } from "../../../../../scripts/docker-test-engine.mjs";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { containerName } from "../../../src/backends/docker/objects/labels.ts";
import type { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { containerOf, settingsIn } from "./docker-harness.ts";
import { type Fault, startFaultyEngine } from "./faulty-engine.ts";
import { describeOnEngine } from "./on-engine.ts";

describeOnEngine("making a container", (onEngine, { docker, image }) => {
  const make = (stage: BackendStage, more: Partial<Blueprint>) =>
    stage.make(stage.newKey(), { blueprint: { ...stage.blueprint, ...more } });

  it("from an image that does not exist is image_unavailable", () =>
    onEngine(async (stage, harness) => {
      const { docker: settings } = settingsIn(harness.home, harness.fleetId, harness.engine);
      const never = await harness.open({ docker: { ...settings, pull: "never" } });
      const blueprint = { ...stage.blueprint, image: "sandlot-no-such-image:1" };
      await stage.rejects(stage.make(stage.newKey(), { blueprint }, never), "image_unavailable");
      expect(await stage.refs()).toEqual([]);
    }));

  it("from an image without a shell is image_unavailable", () =>
    onEngine(async (stage) => {
      await importImage("sandlot-test-no-shell:1", { "etc/hello": "no programs here" });
      await stage.rejects(make(stage, { image: "sandlot-test-no-shell:1" }), "image_unavailable");
      expect(await stage.refs()).toEqual([]);
    }));

  it("with a mount whose host path is missing is mount_refused", () =>
    onEngine(async (stage) => {
      const mounts = [{ hostPath: "/no/such/directory", sandboxPath: "/mnt/data", readOnly: true }];
      await stage.rejects(make(stage, { mounts }), "mount_refused");
      expect(await stage.refs()).toEqual([]);
    }));

  it("with a limit that the engine refuses is create_failed, in the engine's words", () =>
    onEngine(async (stage) => {
      const failure = await make(stage, { limits: { memoryBytes: 1024 } }).catch((error: unknown) => error);
      expect(isSandlotError(failure, "create_failed") && failure.message).toMatch(/memory limit/i);
      expect(await stage.refs()).toEqual([]);
    }));

  it("with a runtime that the engine does not have is isolation_unavailable, and says which it has", () =>
    onEngine(async (stage) => {
      const failure = await make(stage, { runtime: "kata-not-here" }).catch((error: unknown) => error);
      expect(isSandlotError(failure, "isolation_unavailable") && failure.details).toMatchObject({
        problem: expect.stringMatching(/no runtime kata-not-here; it has .*runc/),
        fix: expect.stringContaining("daemon.json"),
      });
      // A shim needs no registration; the engine itself finds out whether it exists.
      await stage.rejects(make(stage, { runtime: "io.containerd.not-here.v2" }), "isolation_unavailable");
      expect(await stage.refs()).toEqual([]);
    }));

  it("from an image without a Node, where ours runs in no image, is image_unavailable and says so", () =>
    onEngine(async (stage, harness) => {
      // Unusable for a Linux container: as on a host of another kind.
      const elsewhere = await harness.open({}, { nodePath: "/etc/passwd" });
      const failure = await stage.make(stage.newKey(), {}, elsewhere).catch((error: unknown) => error);
      expect(isSandlotError(failure, "image_unavailable") && failure.details.problem).toMatch(/has no Node/);
      expect(await stage.refs()).toEqual([]);
    }));

  it("in an image without any C library works, because the daemon brings its own", {
    timeout: 120_000,
  }, async (context) => {
    const missing = installed("busybox", ["busybox-static"]) as string | null;
    if (missing !== null) return context.skip(missing);
    await onEngine(async (stage) => {
      await importImage("sandlot-test-no-libc:1", { "bin/sh": readFileSync("/bin/busybox") });
      const made = await make(stage, { image: "sandlot-test-no-libc:1" });
      expect((await (await stage.attach(made.target)).sandbox.exec("echo here")).stdout).toBe("here\n");
    });
  });

  it.each<readonly [string, Fault]>([
    ["is full", { method: "POST", path: /^\/containers\/create/, status: 500, message: "no space left on device" }],
    [
      "is full after all",
      {
        ...{ method: "POST", path: /^\/containers\/create/, status: 500, message: "no space left on device" },
        takesEffect: true,
      },
    ],
    [
      "has no room to start",
      {
        method: "POST",
        path: /^\/containers\/[^/]+\/start/,
        status: 500,
        message: "fork/exec: cannot allocate memory",
      },
    ],
  ])("on an engine that %s is create_failed, in its words, and nothing stays", (_, fault) =>
    onEngine(async (stage, harness) => {
      const faulty = await startFaultyEngine(harness.engine.host, fault);
      try {
        const { docker: settings } = settingsIn(harness.home, harness.fleetId, harness.engine, { host: faulty.host });
        const full = await harness.open({ docker: settings });
        const failure = await stage.make(stage.newKey(), {}, full).catch((error: unknown) => error);
        expect(isSandlotError(failure, "create_failed") && failure.message).toContain(fault.message);
        expect(faulty.hits()).toBe(1);
        expect(await stage.refs()).toEqual([]);
        const label = [`sandlot.fleet=${harness.fleetId}`];
        expect(await docker.listContainers({ all: true, filters: { label } })).toEqual([]);
        await full.close();
      } finally {
        faulty.close();
      }
    }),
  );

  it("in a container that somebody else has under its name is refused, and theirs stays", () =>
    onEngine(async (stage) => {
      const spec = stage.spec(stage.newKey());
      const name = containerName(`${spec.labels.sandboxId}-${spec.labels.generation}`);
      const theirs = await docker.createContainer({ name, Image: image, Cmd: ["true"] });
      try {
        await stage.rejects(stage.backend.create(spec, stage.signal), "create_failed");
        expect((await theirs.inspect()).State.Status).toBe("created");
      } finally {
        await theirs.remove({ force: true });
      }
    }));

  it("uses the one that is there when the answer to an earlier call was lost", () =>
    onEngine(async (stage) => {
      const first = await stage.make();
      const { Config, HostConfig, Name } = await docker.getContainer(containerOf(first.created.ref)).inspect();
      await stage.destroy(first);
      const spec = { ...stage.spec(stage.newKey()) };
      const name = containerName(`${spec.labels.sandboxId}-${spec.labels.generation}`);
      expect(Name).not.toBe(`/${name}`);
      const labels: Record<string, string> = { ...Config.Labels, "sandlot.sandbox": spec.labels.sandboxId };
      labels["sandlot.generation"] = String(spec.labels.generation);
      // Dead, and provably this object's: it is replaced.
      const dead = await docker.createContainer({
        name,
        Image: image,
        Cmd: ["true"],
        Labels: labels,
        HostConfig: { NetworkMode: "none" },
      });
      await dead.start();
      await dead.wait();
      const created = await stage.backend.create(spec, stage.signal);
      expect(containerOf(created.ref)).not.toBe(dead.id);
      expect(HostConfig.NetworkMode).toBe("none");
    }));

  it("finds the one that runs already, as it is; whoever knows another token is refused, and it stays", () =>
    onEngine(async (stage) => {
      const first = await stage.make();
      const { sandbox } = await stage.attach(first.target);
      await sandbox.files.write("/tmp/note", "kept");
      const again = await stage.backend.create(first.spec, stage.signal);
      expect(again).toEqual({ ...first.created, workspace: "existing" });
      const stranger = { ...first.spec, token: stage.newToken() };
      await stage.rejects(stage.backend.create(stranger, stage.signal), "create_failed");
      expect(await sandbox.files.readText("/tmp/note")).toBe("kept");
      expect(await stage.refs()).toEqual([first.created.ref]);
    }));

  it("refuses a mount that became something else between the check and the engine", () =>
    onEngine(async (stage, harness) => {
      const directory = mkdtempSync(join(tmpdir(), "sl-docker-mount-"));
      const [shown, secret] = [join(directory, "shown"), join(directory, "secret")];
      for (const path of [shown, secret]) mkdirSync(path);
      chmodSync(directory, 0o755);
      writeFileSync(join(secret, "file"), "not for sandboxes");
      const swap = () => {
        rmSync(shown, { recursive: true });
        symlinkSync(secret, shown);
      };
      const fault = { method: "POST", path: /^\/containers\/create/, status: 0, message: "" };
      const faulty = await startFaultyEngine(harness.engine.host, { ...fault, meanwhile: swap });
      try {
        const { docker: settings } = settingsIn(harness.home, harness.fleetId, harness.engine, { host: faulty.host });
        const backend = await harness.open({ docker: settings });
        const mounts = [{ hostPath: shown, sandboxPath: "/mnt/data", readOnly: true }];
        const spec = stage.spec(stage.newKey(), { blueprint: { ...stage.blueprint, mounts } });
        await stage.rejects(backend.create(spec, stage.signal), "mount_refused");
        expect(faulty.hits()).toBe(1);
        expect(await stage.refs()).toEqual([]);
        await backend.close();
      } finally {
        faulty.close();
        rmSync(directory, { recursive: true, force: true });
      }
    }));

  it("shows configured mounts, read-only where they say so, and an image's own variables", () =>
    onEngine(async (stage) => {
      const directory = mkdtempSync(join(tmpdir(), "sl-docker-mount-"));
      try {
        chmodSync(directory, 0o755);
        mkdirSync(join(directory, "deep"));
        writeFileSync(join(directory, "deep/file"), "of the host");
        symlinkSync("deep/file", join(directory, "link"));
        const made = await make(stage, {
          mounts: [{ hostPath: directory, sandboxPath: "/mnt/data", readOnly: true }],
          environment: { COLOUR: "blue" },
        });
        const { sandbox } = await stage.attach(made.target);
        expect((await sandbox.exec("cat /mnt/data/link; echo x > /mnt/data/new || echo refused")).stdout).toBe(
          "of the hostrefused\n",
        );
        expect((await sandbox.exec('echo "$COLOUR $HOME $(whoami)"')).stdout).toBe(
          "blue /mnt/user-data/.home sandbox\n",
        );
        expect(
          (
            await sandbox.exec(
              "ls -d /mnt/acp-workspace/. && echo x > /mnt/acp-workspace/x && ls /mnt/user-data/.acp-workspace",
            )
          ).stdout,
        ).toBe("/mnt/acp-workspace/.\nx\n");
      } finally {
        rmSync(directory, { recursive: true, force: true });
      }
    }));

  it("is refused for a network that this backend cannot keep to", () =>
    onEngine(async (stage) => {
      if (stage.backend.capabilities.has("network")) return;
      await stage.rejects(make(stage, { network: { mode: "open", allow: [] } }), "capability_missing");
    }));

  async function importImage(name: string, files: Readonly<Record<string, string | Buffer>>): Promise<void> {
    const tar = pack();
    for (const [path, content] of Object.entries(files)) tar.entry({ name: path, mode: 0o755 }, content);
    tar.finalize();
    const [repo = "", tag = ""] = name.split(":");
    const stream = await docker.importImage(tar as never, { repo, tag });
    await new Promise((resolve, reject) => {
      stream.on("end", resolve);
      stream.on("error", reject);
      stream.resume();
    });
  }
});
