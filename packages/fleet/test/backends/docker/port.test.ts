/** Daemons behind a port that the engine has published, where no socket can be shared. */

import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { DAEMON_PORT } from "../../../src/backends/docker/container/transport.ts";
import { ContainerObjects, dockerLayout } from "../../../src/backends/docker/objects/container-objects.ts";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { blueprint, containerOf, onStage, openHarness, settingsIn, testEngine, world } from "./docker-harness.ts";
import { suiteTools } from "./suite-tools.ts";
import { usingEngine, withNetwork } from "./using-engine.ts";

const NETWORK = `sandlot-test-port-${process.pid}`;
const open: Blueprint = { ...blueprint, network: { mode: "open", allow: [] } };
const docker = { transport: "port", network: NETWORK } as const;

usingEngine("a published port", await testEngine(), (engine) => {
  withNetwork(engine, NETWORK);

  describeBackend({
    name: "docker over a port",
    // The daemon's own work does not depend on the transport.
    tools: suiteTools(["lifecycle", "attaching", "liveness", "activity", "ports"]),
    blueprint: open,
    open: () => openHarness(engine, docker),
  });

  describe("a published port", () => {
    it("is picked by the engine, on the loopback only, and nothing is to be had there without the token", () =>
      onStage(
        engine,
        async (stage) => {
          const made = await stage.make();
          const { NetworkSettings } = await engine.docker.getContainer(containerOf(made.created.ref)).inspect();
          const bound = NetworkSettings.Ports[`${DAEMON_PORT}/tcp`] ?? [];
          expect(bound.map(({ HostIp }) => HostIp)).toEqual(["127.0.0.1"]);
          const port = Number(bound[0]?.HostPort);
          expect(await status(port, {})).toBe(401);
          const stranger = { ...made.target, token: stage.newToken() };
          await stage.rejects(stage.attach(stranger), "stale_generation");
          expect((await (await stage.attach(made.target)).sandbox.exec("echo in")).stdout).toBe("in\n");
        },
        { docker, of: open },
      ));

    it("is found again by another process, also when nobody has written it down", () =>
      onStage(
        engine,
        async (stage, harness) => {
          const made = await stage.make();
          const objects = new ContainerObjects(dockerLayout(harness.home, harness.fleetId, "/tmp"), world);
          const [name = ""] = await objects.names();
          const object = await objects.get(name);
          if (object?.container == null) throw new Error("it is not written down at all");
          expect(object.container.hostPort === null).toBe(false);
          await objects.made(name, object.record, { ...object.container, hostPort: null });
          const { sandbox } = await stage.attach(made.target, await harness.peer());
          expect((await sandbox.exec("echo found")).stdout).toBe("found\n");
        },
        { docker, of: open },
      ));

    it.each([
      ["a socket", {}],
      ["a port", { docker, of: open }],
    ] as const)("or a socket outlives its daemon: killed twice, it is the same sandbox by %s", (_, options) =>
      onStage(
        engine,
        async (stage) => {
          const made = await stage.make();
          for (const turn of ["first", "second"]) {
            const { sandbox, closed } = await stage.attach(made.target);
            await sandbox.exec(`echo ${turn} >> /tmp/turns`, { cwd: "/" });
            const killed = await sandbox.exec("kill -9 -1; sleep 60", { cwd: "/" }).catch((error: unknown) => error);
            expect(killed).not.toMatchObject({ code: "sandbox_lost" });
            await closed;
            expect(await stage.backend.probe(made.created.ref, stage.signal)).toBe("alive");
          }
          const { sandbox } = await stage.attach(made.target);
          expect(sandbox.generation).toBe(made.target.generation);
          expect(await sandbox.files.readText("/tmp/turns")).toBe("first\nsecond\n");
        },
        options,
      ),
    );

    it("is nothing for a network that the engine's own could not keep to", () =>
      onStage(
        engine,
        async (stage, harness) => {
          await stage.rejects(stage.make(stage.newKey(), { blueprint }), "capability_missing");
          const network = { mode: "allowlist", allow: [{ host: "a.example", ports: [] }] } as const;
          await stage.rejects(
            stage.make(stage.newKey(), { blueprint: { ...blueprint, network } }),
            "capability_missing",
          );
          const settings = settingsIn(harness.home, harness.fleetId, engine, { transport: "port" });
          const unnamed = await harness.open({ docker: settings.docker });
          await stage.rejects(stage.make(stage.newKey(), { blueprint: open }, unnamed), "capability_missing");
          expect(await stage.refs()).toEqual([]);
        },
        { docker, of: open },
      ));

    it("is refused in a network whose members reach each other, and in one that is not there", () =>
      onStage(engine, async (stage, harness) => {
        const loose = await engine.docker.createNetwork({ Name: `${NETWORK}-loose`, Driver: "bridge" });
        try {
          for (const network of [`${NETWORK}-loose`, `${NETWORK}-gone`]) {
            const settings = settingsIn(harness.home, harness.fleetId, engine, { transport: "port", network });
            const backend = await harness.open({ docker: settings.docker });
            await stage.rejects(stage.make(stage.newKey(), { blueprint: open }, backend), "isolation_unavailable");
          }
          expect(await stage.refs()).toEqual([]);
        } finally {
          await loose.remove();
        }
      }));

    it("that cannot be reached from here is create_failed, says where to look, and leaves nothing", () =>
      onStage(
        engine,
        async (stage) => {
          const failure = await stage.make().catch((error: unknown) => error);
          expect(String(failure)).toMatch(/docker\.publishHost/);
          expect(await stage.refs()).toEqual([]);
        },
        // Other addresses of the loopback have no listener.
        { docker: { ...docker, publishHost: "127.7.7.7" }, of: open },
      ));
  });
});

function status(port: number, headers: Readonly<Record<string, string>>): Promise<number> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.once("data", (chunk: Buffer) => {
      resolve(Number(chunk.toString().split(" ")[1]));
      socket.destroy();
    });
    socket.once("error", reject);
    socket.write(`GET /sandlot/activity HTTP/1.1\r\nHost: sandbox\r\n${lines.join("")}\r\n`);
  });
}
