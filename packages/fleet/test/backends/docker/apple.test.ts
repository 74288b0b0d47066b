/**
 * Apple's `container` as the engine: the exact commands it gets, and the backend's handling of its output. A stand-in
 * program replaces it, since there is no Mac here.
 */

import type { ErrorCode } from "@sandlot/contract";
import { afterAll, describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { inspectedImage, listed } from "../../../src/backends/docker/apple/answers.ts";
import { connectAppleEngine } from "../../../src/backends/docker/apple/apple-engine.ts";
import { polledOutput } from "../../../src/backends/docker/apple/apple-watch.ts";
import { createArguments } from "../../../src/backends/docker/apple/arguments.ts";
import { DOCKER_DEFAULTS } from "../../../src/backends/docker/config.ts";
import { containerOptions } from "../../../src/backends/docker/container/options.ts";
import { dockerFindings } from "../../../src/backends/docker/doctor.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { makeStandIn, onAppleStage, openAppleHarness, STATUS, standInProblem } from "./apple/apple-harness.ts";
import { blueprint, containerOf, removeDaemon, world } from "./docker-harness.ts";
import { suiteTools } from "./suite-tools.ts";

const MIB = 1024 * 1024;
/** Every request is a process here. */
const SLOW_MS = 90_000;
const relay = { inside: "/tmp/.sandlot-daemon", outside: "/home/s/abc" };

function requestOf(more: Partial<Blueprint> = {}) {
  return containerOptions({
    ...{ name: "sandlot-x-1", labels: { "sandlot.fleet": "f" }, image: "image:1", imageNames: ["LANG"] },
    blueprint: { ...blueprint, environment: { KEY: "a-secret" }, ...more },
    bindings: [
      { from: "/host/a", to: "/mnt/a", readOnly: true },
      { from: "/host/b", to: "/mnt/b", readOnly: false },
    ],
    ...{ bringsNode: false, hasTemporaryHome: more.home === "temporary", says: true, transport: "socket", relay },
    settings: {
      account: { uid: 501, gid: 20 },
      docker: { ...DOCKER_DEFAULTS, host: null, runtime: null, network: null, hostPaths: {}, capabilities: [] },
    },
    facts: { isRootless: false, remapsUsers: false, isPodman: false, ceilings: null, defaultRuntime: "apple" },
  });
}

describe("a container of Apple's, as it is asked for", () => {
  it("is hardened with what there are flags for, has no network, and its socket is published", () => {
    const limits = { memoryBytes: 512 * MIB + 1, cpuCount: 2, pidsMax: 100, diskBytes: 5_000 };
    const args = createArguments(requestOf({ limits, home: "temporary" }));
    const image = args.indexOf("image:1");
    expect(args.slice(0, image + 1)).toEqual([
      ...["create", "--name", "sandlot-x-1", "--label", "sandlot.fleet=f", "--user", "501:20", "--workdir", "/"],
      ...["--network", "none", "--no-dns", "--cap-drop", "ALL", "--memory", "512M", "--cpus", "2", "--shm-size", "64M"],
      ...["--ulimit", "core=0:0", "--ulimit", "fsize=5000:5000", "--ulimit", "nproc=100:100"],
      ...["--volume", "/host/a:/mnt/a:ro", "--volume", "/host/b:/mnt/b"],
      // Not over /tmp, where the socket is.
      ...["--mount", "type=tmpfs,destination=/var/tmp,size=64M,mode=1777"],
      ...["--mount", "type=tmpfs,destination=/home/temporary,size=64M,mode=1777"],
      ...["--mount", "type=tmpfs,destination=/run/sandlot/tmp,size=64M,mode=1777"],
      ...["--publish-socket", "/home/s/abc:/tmp/.sandlot-daemon"],
      ...["--env", "TMPDIR=/run/sandlot/tmp", "--entrypoint", "/bin/sh", "image:1"],
    ]);
    expect(args[image + 1]).toBe("-c");
    expect(args.join(" ")).not.toContain("a-secret");
  });

  it("is refused where it cannot be said exactly", () => {
    const missing = expect.objectContaining({ code: "capability_missing" });
    expect(() => createArguments(requestOf({ limits: { cpuCount: 0.5 } }))).toThrow(missing);
    const request = requestOf();
    const host = { ...request.HostConfig, NetworkMode: "sandboxes" };
    expect(() => createArguments({ ...request, HostConfig: host })).toThrow(missing);
    const Mounts = [{ Type: "bind" as const, Source: "/a:b", Target: "/mnt/a" }];
    expect(() => createArguments({ ...request, HostConfig: { ...request.HostConfig, Mounts } })).toThrow(
      expect.objectContaining({ code: "mount_refused" }),
    );
  });

  it("is named by the engine that a blueprint asks for, and has a read-only root where no socket is relayed", () => {
    const { relay: _, ...plain } = requestOf({ runtime: "container-runtime-other" });
    expect(createArguments(plain).join(" ")).toContain("--read-only --runtime container-runtime-other");
  });
});

describe("what Apple's container answers", () => {
  const configuration = { id: "a", labels: { k: "v" } };

  it("is understood in both shapes, and only what has stopped is dead", () => {
    const no = () => false;
    expect(listed({ configuration, status: "running" }, no)).toEqual({ Id: "a", State: "running", Labels: { k: "v" } });
    expect(listed({ configuration, status: "stopping" }, no).State).toBe("running");
    expect(listed({ configuration, status: "unknown" }, no).State).toBe("restarting");
    expect(listed({ configuration, status: "stopped" }, no).State).toBe("exited");
    expect(listed({ configuration, status: "stopped" }, () => true).State).toBe("created");
  });

  it("tells of an image only what is for this kind of machine", () => {
    const variant = (architecture: string, Env: string[]) => ({
      platform: { os: "linux", architecture },
      config: { config: { Env } },
    });
    const image = [{ index: { digest: "sha256:1" }, variants: [variant("amd64", ["A=1"]), variant("arm64", ["A=2"])] }];
    expect(inspectedImage(image, "arm64")).toMatchObject({ Id: "sha256:1", Os: "linux", Config: { Env: ["A=2"] } });
    expect(inspectedImage(image, "riscv64")).toBeNull();
  });
});

describe("what a container of Apple's says", () => {
  it("is passed on as it comes, whatever there was at the first look", async () => {
    const looks = ["\n", "one\n", "one\ntw\n", "one\ntwo\nthree\n"];
    const over = new AbortController();
    const read = async () => {
      const said = looks.shift();
      if (said === undefined) over.abort(new Error("enough"));
      return said ?? "";
    };
    let heard = "";
    const all = async () => {
      for await (const chunk of polledOutput(read, world, over.signal)) heard += chunk.toString();
    };
    await expect(all()).rejects.toThrow("enough");
    expect(heard).toBe("one\ntwo\nthree");
  });
});

describe("`sandlot doctor` with Apple's container", () => {
  const settings = (image: string) =>
    resolveSettings({ home: "/tmp", backend: "docker", docker: { image, engine: "apple-container" } }, {});
  const findings = (program: string, image: string = DOCKER_DEFAULTS.image) =>
    dockerFindings(settings(image), {
      environment: {},
      trial: () => Promise.reject(new Error("no trial")),
      containerProgram: program,
    });

  it("finds it, says what keeps sandboxes apart, and whether the image is there", async () => {
    const standIn = makeStandIn();
    try {
      const statuses = async (image?: string) =>
        (await findings(standIn.program, image)).map(({ name, status }) => `${name} ${status}`);
      expect(await statuses()).toEqual(["engine ok", "isolation ok", "image ok"]);
      expect(await statuses("example.org/other:1")).toEqual(["engine ok", "isolation ok", "image warn"]);
      const [engine, , image] = await findings(standIn.program, "example.org/other:1");
      expect(engine?.detail).toContain("Apple's container 1.1.0");
      expect(image?.fix).toBe("container image pull example.org/other:1");
    } finally {
      standIn.remove();
    }
  });

  it("says what to do when it is not there", async () => {
    const [found, ...others] = await findings("/no/such/container");
    expect(others).toEqual([]);
    expect(found).toMatchObject({
      name: "engine",
      status: "fail",
      fix: expect.stringContaining("container system start"),
    });
  });
});

describe("connecting to Apple's container", () => {
  const problemOf = async (program: string) => {
    const error = await connectAppleEngine(program, world).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "engine_unavailable", details: { tried: [program] } });
    return (error as { details: { problem: string } }).details.problem;
  };

  it("says what is missing: the program, its services, a version that can do without a network", async () => {
    expect(await problemOf("/no/such/container")).toBe("there is no such program");
    const stopped = makeStandIn({ ...STATUS, status: "unregistered" });
    const old = makeStandIn({ ...STATUS, apiServerVersion: "container-apiserver version 1.0.0 (build: release)" });
    try {
      expect(await problemOf(stopped.program)).toMatch(/unregistered: container system start/);
      expect(await problemOf(old.program)).toMatch(/version 1\.0\.0; 1\.1\.0 is needed/);
    } finally {
      stopped.remove();
      old.remove();
    }
  });
});

const reason = standInProblem();
if (reason !== null) {
  if (process.env.CI === "true") throw new Error(reason);
  it("the docker backend on Apple's container", (context) => context.skip(reason));
} else {
  afterAll(removeDaemon);

  describeBackend({
    name: "docker on Apple's container",
    tools: suiteTools(["lifecycle", "liveness"]),
    blueprint,
    open: () => openAppleHarness(),
    deviations: {},
  });

  describe("a sandbox on Apple's container", () => {
    it("is made, used and destroyed with these commands and no others", { timeout: SLOW_MS }, () =>
      onAppleStage(async (stage, { standIn }) => {
        const made = await stage.make();
        const { sandbox } = await stage.attach(made.target);
        expect((await sandbox.exec("id -u; sed -n 's/: .*//p' /proc/net/dev | tr -d ' '")).stdout).toBe("59999\nlo\n");
        const id = containerOf(made.created.ref);
        // The backend polls its logs and its state until it is ready, any number of times.
        const looks = ["list --all --format json", `logs ${id}`];
        const told = () => standIn.commands().filter((command) => !looks.includes(command.join(" ")));
        const making = told().map((command) => command.slice(0, 4).join(" "));
        expect(making).toEqual([
          "system status --format json",
          `image inspect ${DOCKER_DEFAULTS.image}`,
          `create --name ${id} --label`,
          `start ${id}`,
        ]);
        await stage.destroy(made);
        expect(told().slice(making.length)).toEqual([["delete", "--force", id]]);
      }),
    );

    it(
      "is refused what the engine cannot do, and an image that is not there is pulled or told of",
      { timeout: SLOW_MS },
      () =>
        onAppleStage(async (stage, { backend, standIn }) => {
          expect([...backend.capabilities].sort()).toEqual(
            [
              "checkpoints",
              "environments",
              "image",
              "limits",
              "mounts",
              "preview",
              "runtime",
              "sessions",
              "terminal",
              "watch",
            ].sort(),
          );
          const refused = (more: Partial<Blueprint>, code: ErrorCode) =>
            stage.rejects(stage.make(stage.newKey(), { blueprint: { ...blueprint, ...more } }), code);
          await refused({ network: { mode: "open", allow: [] } }, "capability_missing");
          await refused({ limits: { cpuCount: 0.5 } }, "capability_missing");
          await refused({ runtime: "runsc" }, "isolation_unavailable");
          await refused({ image: "example.org/no-such:1" }, "image_unavailable");
          await stage.make(stage.newKey(), { blueprint: { ...blueprint, image: "example.org/fetched:1" } });
          const architecture = process.arch === "x64" ? "amd64" : process.arch;
          const pull = ["image", "pull", "--progress", "none", "--platform", `linux/${architecture}`];
          expect(standIn.commands().filter(([, verb]) => verb === "pull")).toEqual([
            [...pull, "example.org/no-such:1"],
            [...pull, "example.org/fetched:1"],
          ]);
        }),
    );

    it("is not paused, and whoever configures that is told", async () => {
      await expect(openAppleHarness({ pauseParked: true })).rejects.toMatchObject({
        code: "capability_missing",
        details: { capability: "pause" },
      });
    });
  });
}
