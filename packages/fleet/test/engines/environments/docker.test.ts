/** Environments on a Docker engine, with the default image and with another one of the same name. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { archive, importInto } from "../../../../../images/build.mjs";
import { DOCKER_DEFAULTS } from "../../../src/backends/docker/config.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { testEngine } from "../../backends/docker/docker-harness.ts";
import { removed, usingEngine } from "../../backends/docker/using-engine.ts";
import { testEnvironments } from "../../environments/environments-suite.ts";

/** Debian's packages are fetched and unpacked, once. */
const MAKING_MS = 480_000;

usingEngine("environments in containers", await testEngine(), (engine) => {
  const { image } = DOCKER_DEFAULTS;
  const docker = { host: engine.host };

  describe("environments in containers", () => {
    beforeAll(() => {
      archive();
      importInto({ host: engine.host, tag: image });
    }, MAKING_MS);

    // An engine sets no other options of a bind mount; the tree itself has no devices and no setuid.
    testEnvironments({ config: { backend: "docker", docker }, mountOptions: /\/opt\/env ro\b/, hasBlanks: true });

    it("another image under the same name makes another environment", { timeout: 180_000 }, async () => {
      const home = mkdtempSync(join(tmpdir(), "sle-"));
      const tag = `sandlot-test-moved-${process.pid}`;
      const own = { ...docker, image: `${tag}:1` };
      const setup = { script: "ls /etc | wc -l > /opt/env/size; date +%s%N > /opt/env/when" };
      const fleet = await openFleet({ home, backend: "docker", docker: own, blueprints: { default: { setup } } });
      const read = async (thread: string) => {
        await using lease = await fleet.acquire({ thread });
        return (await lease.sandbox.exec("cat /opt/env/when")).stdout;
      };
      try {
        await engine.docker.getImage(image).tag({ repo: tag, tag: "1" });
        const first = await read("a");
        expect(await read("b")).toBe(first);
        await engine.docker.getImage(engine.image).tag({ repo: tag, tag: "1" });
        expect(await read("c")).not.toBe(first);
        // A running one keeps its own.
        expect(await read("a")).toBe(first);
      } finally {
        await fleet.close({ destroy: true });
        rmSync(home, { recursive: true, force: true });
        await removed(() => engine.docker.getImage(`${tag}:1`).remove());
      }
    });
  });
});
