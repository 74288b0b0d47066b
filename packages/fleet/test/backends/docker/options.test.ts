/** The create request to the engine: hardened whatever the blueprint says, and without any secret. */

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { DOCKER_DEFAULTS } from "../../../src/backends/docker/config.ts";
import { firstCommand, NO_RUNTIME } from "../../../src/backends/docker/container/inside.ts";
import { type ContainerShape, containerOptions } from "../../../src/backends/docker/container/options.ts";
import { explainCreate, explainExit } from "../../../src/backends/docker/container/start-problem.ts";
import { EngineRefusal } from "../../../src/backends/docker/engine/trouble.ts";

const GIB = 1024 ** 3;
const blueprint: Blueprint = {
  environment: { API_KEY: "a-secret" },
  limits: { memoryBytes: GIB, cpuCount: 1.5, pidsMax: 100, diskBytes: 5_000 },
  mounts: [],
  network: { mode: "none", allow: [] },
};

function shape(more: Partial<ContainerShape> = {}): ContainerShape {
  return {
    name: "sandlot-x-1",
    labels: { "sandlot.fleet": "f" },
    image: "image:1",
    imageNames: ["PATH", "NODE_OPTIONS", "not a name; rm -rf /"],
    blueprint,
    bindings: [
      { from: "/host/a", to: "/mnt/a", readOnly: true },
      { from: "/host/b", to: "/mnt/b", readOnly: false },
    ],
    bringsNode: true,
    hasTemporaryHome: false,
    says: false,
    transport: "socket",
    relay: null,
    settings: {
      account: { uid: 59_999, gid: 59_998 },
      docker: { ...DOCKER_DEFAULTS, host: null, runtime: null, network: null, hostPaths: {}, capabilities: [] },
    },
    facts: { isRootless: false, remapsUsers: false, isPodman: false, ceilings: null, defaultRuntime: "runc" },
    ...more,
  };
}

describe("a container's options", () => {
  it("are hardened", () => {
    const { HostConfig, User } = containerOptions(shape());
    expect(User).toBe("59999:59998");
    expect(HostConfig).toMatchObject({
      ...{ CapDrop: ["ALL"], CapAdd: [], Privileged: false, NetworkMode: "none", ReadonlyRootfs: true, Init: false },
      ...{ SecurityOpt: ["no-new-privileges"], IpcMode: "private", RestartPolicy: { Name: "no" } },
    });
    expect(HostConfig?.MaskedPaths).toEqual(
      expect.arrayContaining(["/proc/kcore", "/proc/cmdline", "/proc/config.gz", "/sys/firmware"]),
    );
  });

  it("hold the blueprint's limits, and leave half of the memory for programs", () => {
    const { HostConfig } = containerOptions(shape());
    expect(HostConfig).toMatchObject({ Memory: GIB, MemorySwap: GIB, NanoCpus: 1_500_000_000, PidsLimit: 100 });
    expect(HostConfig?.Ulimits).toContainEqual({ Name: "fsize", Soft: 5_000, Hard: 5_000 });
    for (const options of Object.values(HostConfig?.Tmpfs ?? {}))
      expect(Number(/size=(\d+)/.exec(options)?.[1])).toBeLessThanOrEqual(GIB / 8);
  });

  it("hold no secret, and nothing of the image's variables gets to the shell", () => {
    const options = containerOptions(shape());
    expect(JSON.stringify(options)).not.toContain("a-secret");
    expect(options.Cmd?.join("\n")).toContain("unset HOME NODE_OPTIONS\n");
    expect(JSON.stringify(options)).not.toContain("rm -rf");
  });

  it("mount read-only without what is mounted below", () => {
    const mounts = containerOptions(shape()).HostConfig?.Mounts ?? [];
    expect(mounts.map(({ ReadOnly, BindOptions }) => [ReadOnly, BindOptions])).toEqual([
      [true, { Propagation: "rprivate", NonRecursive: true }],
      [false, { Propagation: "rprivate" }],
    ]);
  });

  it("name the engine's root only where that is an ordinary user of the host", () => {
    expect(
      containerOptions(
        shape({
          facts: { isRootless: true, remapsUsers: false, isPodman: false, ceilings: null, defaultRuntime: "runc" },
        }),
      ).User,
    ).toBe("0:0");
    const remapped = containerOptions(
      shape({
        facts: { isRootless: false, remapsUsers: true, isPodman: false, ceilings: null, defaultRuntime: "runc" },
      }),
    );
    expect(remapped.HostConfig?.UsernsMode).toBe("host");
  });

  it("look for the image's own Node where none is brought", () => {
    const [, , script = ""] = firstCommand(false, []);
    expect(firstCommand(true, []).join("\n")).not.toContain("for folder in $PATH");
    // A sandbox writes to the first two, and its next one has what it wrote.
    const own = "/mnt/user-data/.home/.local/bin:/home/sandbox/bin:relative";
    const folder = dirname(process.execPath);
    const search = `${script.slice(0, script.indexOf("export PATH"))}echo "$found"`;
    const found = (PATH: string) => spawnSync("/bin/sh", ["-c", search], { env: { PATH }, encoding: "utf8" });
    expect(found(`${own}:${folder}:/other`)).toMatchObject({ status: 0, stdout: `${folder}/node\n` });
    const planted = mkdtempSync(join(tmpdir(), "sl-planted-"));
    mkdirSync(join(planted, "relative"));
    symlinkSync(process.execPath, join(planted, "relative/node"));
    const inside = spawnSync("/bin/sh", ["-c", search], { env: { PATH: own }, cwd: planted, encoding: "utf8" });
    rmSync(planted, { recursive: true });
    expect(inside).toMatchObject({ status: 97, stderr: "sandlot: no Node that runs here\n" });
  });
});

describe("why a container did not come up", () => {
  const refusal = (status: number, message: string) => explainCreate(new EngineRefusal(status, message), "image:1", []);

  it("is told in words of the contract", () => {
    expect(refusal(404, "No such image: image:1")).toMatchObject({ code: "image_unavailable" });
    expect(refusal(400, 'exec: "/bin/sh": stat /bin/sh: no such file or directory')).toMatchObject({
      code: "image_unavailable",
      details: { problem: "it has no /bin/sh" },
    });
    expect(refusal(400, "Minimum memory limit allowed is 6MB")).toMatchObject({ code: "create_failed" });
    expect(refusal(500, "no space left on device")).toMatchObject({ code: "create_failed" });
    expect(explainCreate(explainExit({ ExitCode: 97 }, `${NO_RUNTIME}\n`), "image:1", [])).toMatchObject({
      code: "image_unavailable",
    });
    expect(explainCreate(explainExit({ OOMKilled: true }, ""), "image:1", [])).toMatchObject({ code: "create_failed" });
    const mounts = [{ from: "/a", to: "/b", readOnly: true }];
    const missing = new EngineRefusal(400, "invalid mount config: bind source path does not exist: /a");
    expect(explainCreate(missing, "image:1", mounts)).toMatchObject({ code: "mount_refused" });
  });
});
