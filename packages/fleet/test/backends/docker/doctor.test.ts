/**
 * The output of `sandlot doctor` for the docker backend on a real engine: accounts, and images with their own server.
 */

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { sharedAccountReason } from "../../../src/backends/docker/container-accounts.ts";
import { accountFinding, dockerFindings } from "../../../src/backends/docker/doctor.ts";
import { dockerSettings } from "../../../src/backends/docker/settings.ts";
import { trialOf } from "../../../src/cli/doctor/trial.ts";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import { sharingProblem } from "../../../src/host/accounts/index.ts";
import { networkProblem } from "../../../src/host/egress/index.ts";
import { type AioImage, makeAioImage } from "./aio-image.ts";
import { STOPPING_MS, testEngine, world } from "./docker-harness.ts";
import { usingEngine } from "./using-engine.ts";

usingEngine("doctor", await testEngine(), (engine) => {
  const home = mkdtempSync(join(tmpdir(), "sl-doctor-"));
  const ALLOWED = { mode: "allowlist", allow: [{ host: "a.example", ports: [80] }] } as const;
  let image: AioImage;
  beforeAll(async () => {
    image = await makeAioImage(engine);
  }, STOPPING_MS);
  afterAll(async () => {
    await image.remove();
    rmSync(home, { recursive: true });
  }, STOPPING_MS);

  const look = async (docker: NonNullable<FleetConfig["docker"]>, blueprints: FleetConfig["blueprints"] = {}) => {
    const config: FleetConfig = {
      ...{ home, backend: "docker", blueprints },
      docker: { host: engine.host, image: engine.image, pull: "never", ...docker },
    };
    const settings = resolveSettings(config, {});
    const found = await dockerFindings(settings, { environment: {}, trial: trialOf(settings) });
    return Object.fromEntries(found.map((finding) => [finding.name, finding]));
  };
  const containers = async () => (await engine.docker.listContainers({ all: true })).map(({ Labels }) => Labels);
  const ofDoctor = async () => (await containers()).filter((labels) => JSON.stringify(labels).includes("doctor-"));

  it("says whether sandboxes have accounts of their own", async () => {
    const { account } = await look({});
    const shared = sharingProblem();
    expect(account?.status).toBe(shared === null ? "ok" : "warn");
    expect(account?.detail).toContain(shared ?? "every sandbox has an account of its own");
    const itself = await look({ runtime: "aio", image: "no.such/image:1", capabilities: ["CHOWN"] });
    expect(itself.account).toMatchObject({ status: "warn", detail: expect.stringContaining("its own user") });
  });

  it("tries an image that brings its own server, and leaves nothing", async (context) => {
    const problem = await networkProblem("allowlist", world);
    if (problem !== null) return context.skip(problem);
    const found = await look({ runtime: "aio", image: image.name }, { default: { network: ALLOWED } });
    expect(found["trial sandbox"]).toEqual({
      name: "trial sandbox",
      status: "ok",
      detail: "its server answered, asked for its key, and ran a command",
    });
    expect(found["closed daemon"]).toMatchObject({ status: "warn", detail: expect.stringContaining("aio") });
    expect(await ofDoctor()).toEqual([]);
    expect(readdirSync(home)).toEqual([]);
  }, 120_000);

  it("fails where the server has too little, where there is none, and where sandboxes have no network", async (context) => {
    const problem = await networkProblem("allowlist", world);
    if (problem !== null) return context.skip(problem);
    const old = await makeAioImage(engine, { STAND_IN_WITHOUT: "/v1/bash" });
    try {
      const network = { default: { network: ALLOWED } };
      const lacking = await look({ runtime: "aio", image: old.name }, network);
      expect(lacking["trial sandbox"]).toMatchObject({ status: "fail", detail: expect.stringContaining("/v1/bash") });
      const none = await look({ runtime: "aio" }, network);
      expect(none["trial sandbox"]).toMatchObject({ status: "fail" });
      const cut = await look({ runtime: "aio", image: image.name });
      expect(cut["trial sandbox"]).toMatchObject({ status: "fail", detail: expect.stringContaining("network") });
    } finally {
      await old.remove();
    }
    expect(await ofDoctor()).toEqual([]);
    expect(readdirSync(home)).toEqual([]);
  }, 300_000);
});

it("names each reason why containers share an account", () => {
  const settings = dockerSettings(resolveSettings({ home: tmpdir(), backend: "docker" }, {}));
  const facts = { isOnThisHost: true, isRootless: false };
  expect(sharedAccountReason(settings, facts)).toBe(sharingProblem());
  expect(sharedAccountReason(settings, { ...facts, isOnThisHost: false })).toContain("another machine");
  expect(sharedAccountReason(settings, { ...facts, isRootless: true })).toContain("rootless");
  const itself = { ...settings, speaksAio: true, docker: { ...settings.docker, capabilities: ["CHOWN"] } };
  expect(sharedAccountReason(itself, facts)).toContain("docker.capabilities");
  expect(accountFinding("a reason", 5)).toMatchObject({ status: "warn", detail: expect.stringContaining("a reason") });
  expect(accountFinding(null, 5)).toMatchObject({ name: "account", status: "ok" });
});
