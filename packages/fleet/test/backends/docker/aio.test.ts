/**
 * `docker.runtime: aio`: sandboxes whose image has its own server, on a real engine. Supported calls behave as on every
 * backend; unsupported ones say so.
 */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { AIO_PORT } from "../../../src/backends/docker/aio/options.ts";
import { networkProblem } from "../../../src/host/egress/index.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { AIO_DEVIATIONS } from "../aio-deviations.ts";
import { claimedUid } from "../own-accounts.ts";
import { type AioImage, makeAioImage } from "./aio-image.ts";
import {
  blueprint,
  containerOf,
  onStage,
  openHarness,
  STOPPING_MS,
  settingsIn,
  type TestEngine,
  testEngine,
  world,
} from "./docker-harness.ts";
import { usingEngine, withNetwork } from "./using-engine.ts";

const HERE = "/mnt/user-data/workspace";
const NETWORK = `sandlot-test-aio-${process.pid}`;
const open: Blueprint = { ...blueprint, network: { mode: "open", allow: [] } };
const ALLOWED = { mode: "allowlist", allow: [{ host: "a.example", ports: [80] }] } as const;
/** Workspaces and listings use the same code as with a daemon inside. */
const LEFT_OUT: ReadonlySet<string> = new Set(["workspaces", "lifecycle"]);
/** Each case has its own containers and mostly waits for them, so these run side by side. The others measure time. */
const PATIENT: ReadonlySet<string> = new Set(["attaching", "exec", "files", "file search", "file streams", "spawning"]);
const PATIENT_MS = 120_000;
/** Undeclared capabilities are only tested for their refusal. */
const NOT_DECLARED: ReadonlySet<string> = new Set(["sessions", "terminals", "watching", "ports"]);

usingEngine("images with a server of their own", await testEngine(), describeAio);

function describeAio(engine: TestEngine): void {
  let image: AioImage;
  const published = () => ({ runtime: "aio", image: image.name, network: NETWORK, transport: "port" }) as const;

  beforeAll(async () => {
    image = await makeAioImage(engine);
  }, STOPPING_MS);
  afterAll(() => image.remove(), STOPPING_MS);
  withNetwork(engine, NETWORK);

  describeBackend({
    name: "docker with an image's own server",
    tools: { describe: describeSome, it: itSome, expect },
    blueprint: open,
    open: () => openHarness(engine, published()),
    deviations: AIO_DEVIATIONS,
  });

  describe("a server that is published", () => {
    it("is at a port that the engine picked, on the loopback, and answers nobody without its key", () =>
      onStage(
        engine,
        async (stage) => {
          const made = await stage.make(stage.newKey(), {
            blueprint: { ...open, environment: { SECRET: "not for the engine" } },
          });
          const container = await engine.docker.getContainer(containerOf(made.created.ref)).inspect();
          const bound = container.NetworkSettings.Ports[`${AIO_PORT}/tcp`] ?? [];
          expect(bound.map(({ HostIp }) => HostIp)).toEqual(["127.0.0.1"]);
          const url = `http://127.0.0.1:${bound[0]?.HostPort}/v1/sandbox`;
          expect((await fetch(url)).status).toBe(401);
          const { sandbox } = await stage.attach(made.target);
          expect((await sandbox.exec("echo $SECRET")).stdout).toBe("not for the engine\n");
          expect(JSON.stringify(container)).not.toContain("not for the engine");
        },
        { docker: published(), of: open },
      ));

    it("is as hardened as every container, and has what capabilities are named, as its own user", () =>
      onStage(
        engine,
        async (stage, harness) => {
          const about = async (backend = stage.backend) => {
            const made = await stage.make(stage.newKey(), {}, backend);
            const { sandbox } = await stage.attach(made.target, backend);
            const script = "id -u; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '";
            return { made, stdout: (await sandbox.exec(script, { cwd: "/" })).stdout };
          };
          const none = "CapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n";
          const both = [await about(), await about()];
          const uids = both.map(({ made }) => claimedUid(harness, made));
          expect(both.map(({ stdout }) => stdout)).toEqual(uids.map((uid) => `${uid}\n${none}`));
          expect(new Set(uids).size).toBe(process.getuid?.() === 0 ? 2 : 1);
          const docker = { ...settingsOf(harness), capabilities: ["CHOWN", "NET_BIND_SERVICE"] };
          expect((await about(await harness.open({ docker }))).stdout).toBe(
            "0\nCapEff: 0000000000000401\nNoNewPrivs: 1\nSeccomp: 2\n",
          );
        },
        { docker: published(), of: open },
      ));

    it("is refused without a network, and where nothing answers nothing is left", () =>
      onStage(
        engine,
        async (stage, harness) => {
          await stage.rejects(stage.make(stage.newKey(), { blueprint }), "capability_missing");
          const old = await makeAioImage(engine, { STAND_IN_WITHOUT: "/v1/bash" });
          try {
            await stage.rejects(
              stage.make(stage.newKey(), { blueprint: { ...open, image: old.name } }),
              "image_unavailable",
            );
          } finally {
            await old.remove();
          }
          await stage.rejects(
            stage.make(stage.newKey(), { blueprint: { ...open, image: engine.image } }),
            "create_failed",
          );
          const hasty = await harness.open({}, { readyTimeoutMs: 1 });
          await stage.rejects(stage.make(stage.newKey(), {}, hasty), "create_failed");
          expect(await stage.refs()).toEqual([]);
        },
        { docker: published(), of: open },
      ));
  });

  describe("a server that is reached in its own network namespace", () => {
    it("needs nothing published, has its way out, and its connections end when they should", async (context) => {
      const problem = await networkProblem("allowlist", world);
      if (problem !== null) return context.skip(problem);
      const docker = { runtime: "aio", image: image.name } as const;
      await onStage(
        engine,
        async (stage, harness) => {
          const made = await stage.make();
          const { HostConfig, NetworkSettings } = await engine.docker
            .getContainer(containerOf(made.created.ref))
            .inspect();
          expect([HostConfig.NetworkMode, NetworkSettings.Ports]).toEqual(["none", {}]);
          const mine = await stage.attach(made.target);
          const theirs = await stage.attach(made.target, await harness.peer());
          expect((await mine.sandbox.exec("echo $http_proxy; ls /sys/class/net")).stdout).toMatch(
            /127\.0\.0\.1:3128.*\nlo\n/,
          );
          await mine.sandbox.files.write(`${HERE}/note`, "shared");
          expect(await theirs.sandbox.files.readText(`${HERE}/note`)).toBe("shared");
          expect(doors().length).toBe(2);
          await mine.close();
          await stage.eventually("its door is closed", () => doors().length === 1);
          await stage.rejects(mine.sandbox.exec("true"), "sandbox_unreachable");
          expect((await stage.backend.activity(made.created.ref, stage.signal)).runningExecs).toBe(0);
          const again = await stage.attach(made.target);
          const running = stage.rejects(again.sandbox.exec("sleep 60"), "sandbox_lost");
          await harness.kill(made.created.ref);
          await running;
          await Promise.all([again.closed, theirs.closed]);
          await stage.eventually("all doors are closed", () => doors().length === 0);
          await stage.rejects(stage.attach(made.target), "sandbox_lost");
        },
        { docker, of: { ...blueprint, network: ALLOWED } },
      );
    });

    it("lets go of everything when its backend is closed", async (context) => {
      const problem = await networkProblem("allowlist", world);
      if (problem !== null) return context.skip(problem);
      await onStage(
        engine,
        async (stage, harness) => {
          const peer = await harness.peer();
          const made = await stage.make(stage.newKey(), {}, peer);
          const { sandbox, closed } = await stage.attach(made.target, peer);
          const waiting = stage.rejects(sandbox.exec("sleep 60"), "sandbox_unreachable");
          await peer.close();
          await Promise.all([closed, waiting]);
          await stage.eventually("its door is closed", () => doors().length === 0);
          expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("alive");
        },
        { docker: { runtime: "aio", image: image.name }, of: { ...blueprint, network: ALLOWED } },
      );
    });
  });

  it("a fleet holds its connections while somebody has a lease, and has the workspace again after", async (context) => {
    const problem = await networkProblem("allowlist", world);
    if (problem !== null) return context.skip(problem);
    const home = mkdtempSync(join(tmpdir(), "sl-aio-fleet-"));
    const settings = { runtime: "aio", host: engine.host, image: image.name };
    const config = {
      home,
      backend: "docker",
      docker: settings,
      blueprints: { default: { network: ALLOWED } },
    } as const;
    const fleet = await openFleet(config);
    const eventually = (count: number) => expect.poll(() => doors().length).toBe(count);
    try {
      const first = await fleet.acquire({ thread: "t1" });
      const second = await fleet.acquire({ thread: "t1" });
      await first.sandbox.files.write(`${HERE}/note`, "kept");
      await first.release();
      expect(await second.sandbox.files.readText(`${HERE}/note`)).toBe("kept");
      await eventually(1);
      await second.release();
      await second.release();
      await eventually(0);
      const again = await fleet.acquire({ thread: "t1" });
      await fleet.destroy({ thread: "t1" }, { force: true });
      await eventually(0);
      expect(await again.release().then(() => "released")).toBe("released");
      await using next = await fleet.acquire({ thread: "t1" });
      expect(await next.sandbox.files.readText(`${HERE}/note`)).toBe("kept");
    } finally {
      await fleet.close({ destroy: true });
      rmSync(home, { recursive: true, force: true });
    }
    expect(doors()).toEqual([]);
    const left = await engine.docker.listContainers({ all: true, filters: { ancestor: [image.name] } });
    expect(left).toEqual([]);
  });

  function settingsOf({ home, fleetId }: { readonly home: string; readonly fleetId: FleetId }) {
    return settingsIn(home, fleetId, engine, published()).docker;
  }
}

let group = "";

function describeSome(name: string, body: () => void): void {
  if (LEFT_OUT.has(name)) return;
  describe(name, () => {
    group = name;
    body();
  });
}

function itSome(name: string, run: () => Promise<void>): void {
  const isAsked = !NOT_DECLARED.has(group) || /^(without the capability|has no deviation)/.test(name);
  if (isAsked && PATIENT.has(group)) it.concurrent(name, { timeout: PATIENT_MS }, run);
  else if (isAsked) it(name, run);
}

/** Processes of this one that are in a container's network namespace. */
function doors(): readonly string[] {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const isOurs = readFileSync(`/proc/${pid}/stat`, "latin1").includes(`) S ${process.pid} `);
      return isOurs && readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("namespace-connector-child");
    } catch {
      return false;
    }
  });
}
