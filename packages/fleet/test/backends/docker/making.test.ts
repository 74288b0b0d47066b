/**
 * Making containers: what stands in the way is a named error within its time, and nothing half-made stays.
 */

import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { pack } from "tar-stream";
import { expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { containerName } from "../../../src/backends/docker/objects/labels.ts";
import type { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { containerOf, settingsIn } from "./docker-harness.ts";
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
        expect((await sandbox.exec('echo "$COLOUR $HOME $(whoami)"')).stdout).toBe("blue /home/sandbox sandbox\n");
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

  it("pulls an image once for all who wait, tells how it goes, and each may stop waiting", () =>
    onEngine(async (stage, harness) => {
      const registry = await slowRegistry();
      try {
        const progress: string[] = [];
        harness.onPull.push(({ status }) => progress.push(status));
        const name = `127.0.0.1:${registry.port}/never:1`;
        const blueprint = { ...stage.blueprint, image: name };
        const controller = new AbortController();
        const reason = new Error("given up");
        const both = [1, 2].map(() =>
          stage.rejectsWith(stage.backend.create(stage.spec(stage.newKey(), { blueprint }), controller.signal), reason),
        );
        await stage.eventually("the registry is asked", () => registry.asked() > 0);
        await stage.eventually("progress is told", () => progress.includes("Downloading"));
        controller.abort(reason);
        await Promise.all(both);
        expect(registry.asked()).toBe(1);
        // The engine itself notices only with the next byte that nobody waits any more.
        const refused = await make(stage, { image: `127.0.0.1:${registry.port}/missing:1` }).catch(
          (error: unknown) => error,
        );
        expect(isSandlotError(refused, "image_unavailable")).toBe(true);
      } finally {
        registry.close();
      }
    }));

  it("is refused for a network that this backend cannot keep to", () =>
    onEngine(async (stage) => {
      if (stage.backend.capabilities.has("network")) return;
      await stage.rejects(make(stage, { network: { mode: "open", allow: [] } }), "capability_missing");
    }));

  async function importImage(name: string, files: Readonly<Record<string, string>>): Promise<void> {
    const tar = pack();
    for (const [path, content] of Object.entries(files)) tar.entry({ name: path }, content);
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

/** A registry that has `never`, whose one layer never comes to its end, and does not have anything else. */
async function slowRegistry() {
  const digest = (content: string | Buffer) => `sha256:${createHash("sha256").update(content).digest("hex")}`;
  const layer = Buffer.alloc(1024 * 1024, "sandlot");
  const config = JSON.stringify({
    architecture: process.arch === "arm64" ? "arm64" : "amd64",
    os: "linux",
    config: {},
    rootfs: { type: "layers", diff_ids: [digest(layer)] },
  });
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: MANIFEST,
    config: {
      mediaType: "application/vnd.docker.container.image.v1+json",
      size: config.length,
      digest: digest(config),
    },
    layers: [
      { mediaType: "application/vnd.docker.image.rootfs.diff.tar.gzip", size: layer.length, digest: digest(layer) },
    ],
  });
  let asked = 0;
  const server: Server = createServer((request, response) => {
    const { url = "" } = request;
    if (url === "/v2/") response.end("{}");
    else if (url.endsWith(digest(config))) response.end(config);
    else if (url.endsWith(digest(layer))) {
      asked += 1;
      response.writeHead(200, { "content-length": layer.length }).write(layer.subarray(0, 512 * 1024));
    } else if (url.includes("/never/manifests/")) {
      response.writeHead(200, {
        "content-type": MANIFEST,
        "content-length": manifest.length,
        "docker-content-digest": digest(manifest),
      });
      response.end(request.method === "HEAD" ? undefined : manifest);
    } else response.writeHead(404).end('{"errors":[{"code":"NAME_UNKNOWN"}]}');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    asked: () => asked,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const MANIFEST = "application/vnd.docker.distribution.manifest.v2+json";
