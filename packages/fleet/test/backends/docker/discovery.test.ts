/** Where the backend looks for an engine, and the error when there is none. */

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, describe, expect, it } from "vitest";
import { enginePlaces } from "../../../src/backends/docker/engine/discovery.ts";
import { agreedVersion, connectEngine } from "../../../src/backends/docker/engine/docker-engine.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const home = mkdtempSync(join(tmpdir(), "sl-docker-home-"));
afterAll(() => rmSync(home, { recursive: true, force: true }));

const addresses = (configured: string | null, environment: Record<string, string>, at = home) =>
  enginePlaces(configured, environment, at, 1234).map(({ address }) => address);

describe("where an engine is looked for", () => {
  it("is what was configured, then DOCKER_HOST, and nothing else", () => {
    expect(addresses("unix:///a", { DOCKER_HOST: "unix:///b" })).toEqual(["unix:///a"]);
    expect(addresses(null, { DOCKER_HOST: "unix:///b" })).toEqual(["unix:///b"]);
  });

  it("is the chosen context of Docker's own tools", () => {
    const chosen = mkdtempSync(join(tmpdir(), "sl-docker-context-"));
    try {
      const key = createHash("sha256").update("desk").digest("hex");
      mkdirSync(join(chosen, ".docker/contexts/meta", key), { recursive: true });
      writeFileSync(join(chosen, ".docker/config.json"), JSON.stringify({ currentContext: "desk" }));
      const meta = { Name: "desk", Endpoints: { docker: { Host: "unix:///desk.sock" } } };
      writeFileSync(join(chosen, ".docker/contexts/meta", key, "meta.json"), JSON.stringify(meta));
      expect(addresses(null, {}, chosen)).toEqual(["unix:///desk.sock"]);
      expect(addresses(null, { DOCKER_CONTEXT: "default" }, chosen).length).toBeGreaterThan(1);
      expect(addresses(null, { DOCKER_CONTEXT: "gone" }, chosen)).toEqual(["context:gone"]);
    } finally {
      rmSync(chosen, { recursive: true, force: true });
    }
  });

  it("is the usual sockets, of Docker first, rootless and Podman's too", () => {
    const usual = addresses(null, { XDG_RUNTIME_DIR: "/run/user/1234" });
    expect(usual[0]).toBe("unix:///var/run/docker.sock");
    expect(usual).toContain("unix:///run/user/1234/docker.sock");
    expect(usual).toContain("unix:///run/user/1234/podman/podman.sock");
    expect(usual.at(-1)).toBe("unix:///run/podman/podman.sock");
  });
});

describe("connecting", () => {
  const world = systemWorld();

  it("to nothing says everything that was tried, and why it was not that", async () => {
    const places = ["unix:///no/such.sock", "nonsense", "tcp://127.0.0.1:1"].map((address) => ({
      address,
      from: "a test",
    }));
    const error = await connectEngine(places, world).catch((thrown: unknown) => thrown);
    if (!isSandlotError(error, "engine_unavailable")) throw error;
    expect(error.details.tried).toEqual([
      "unix:///no/such.sock (a test): there is no socket",
      "nonsense (a test): such an address cannot be used; unix:// and tcp:// can",
      "tcp://127.0.0.1:1 (a test): nothing listens there",
    ]);
  });

  it("is not led astray by DOCKER_HOST once an address is given", async () => {
    const asked: string[] = [];
    let securityOptions = ["name=seccomp,profile=default", "name=rootless"];
    const server = createServer((request, response) => {
      asked.push(request.url ?? "");
      response.setHeader("content-type", "application/json");
      if (request.url === "/version") response.end(JSON.stringify({ ApiVersion: "1.43", MinAPIVersion: "1.24" }));
      else response.end(JSON.stringify({ ID: "an-engine", SecurityOptions: securityOptions }));
    });
    const socketPath = join(home, "e.sock");
    await new Promise<void>((resolve) => server.listen(socketPath, resolve));
    process.env.DOCKER_HOST = "tcp://127.0.0.1:1";
    try {
      const engine = await connectEngine([{ address: `unix://${socketPath}`, from: "a test" }], world);
      expect(engine.facts).toMatchObject({ id: "an-engine", apiVersion: "1.43", isRootless: true, hasSeccomp: true });
      expect(asked).toEqual(["/_ping", "/version", "/v1.43/info"]);
      // A second request may find another configuration.
      securityOptions = ["name=seccomp,profile=unconfined"];
      await engine.identify();
      expect(engine.facts).toMatchObject({ id: "an-engine", isRootless: false, hasSeccomp: false });
      engine.close();
    } finally {
      delete process.env.DOCKER_HOST;
      server.closeAllConnections();
      server.close();
    }
  });

  it("goes by TLS where certificates are named, and shows its own", async () => {
    const certificates = join(home, "certificates");
    mkdirSync(certificates, { recursive: true });
    const openssl = (...args: string[]) => expect(spawnSync("openssl", args, { cwd: certificates }).status).toBe(0);
    openssl(
      "req",
      "-x509",
      "-newkey",
      "ed25519",
      "-nodes",
      "-keyout",
      "key.pem",
      "-out",
      "cert.pem",
      "-days",
      "1",
      "-subj",
      "/CN=localhost",
      "-addext",
      "subjectAltName=IP:127.0.0.1",
    );
    copyFileSync(join(certificates, "cert.pem"), join(certificates, "ca.pem"));
    const [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map((name) => readFileSync(join(certificates, name)));
    const server = createSecureServer(
      { ca, cert, key, requestCert: true, rejectUnauthorized: true },
      (request, response) => {
        response.setHeader("content-type", "application/json");
        response.end(JSON.stringify(request.url === "/version" ? { ApiVersion: "1.43" } : { ID: "by TLS" }));
      },
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = `tcp://127.0.0.1:${(server.address() as AddressInfo).port}`;
    try {
      const environment = { DOCKER_HOST: address, DOCKER_TLS_VERIFY: "1", DOCKER_CERT_PATH: certificates };
      const engine = await connectEngine(enginePlaces(null, environment, home, 1_000), world);
      expect(engine.facts.id).toBe("by TLS");
      engine.close();
      // Without them, and with none in the expected place.
      for (const DOCKER_CERT_PATH of ["", join(home, "none-here")])
        await expect(
          connectEngine(enginePlaces(null, { DOCKER_HOST: address, DOCKER_CERT_PATH }, home, 1_000), world),
        ).rejects.toMatchObject({ code: "engine_unavailable" });
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  it("agrees on the newest version that both speak", () => {
    expect(agreedVersion("1.41", "1.12", "x")).toBe("1.41");
    expect(agreedVersion("1.99", "1.44", "x")).toBe("1.51");
    for (const [newest, oldest] of [
      ["1.40", "1.12"],
      ["1.60", "1.52"],
    ] as const)
      expect(() => agreedVersion(newest, oldest, "x")).toThrow(/1\.41 to 1\.51/);
  });
});
