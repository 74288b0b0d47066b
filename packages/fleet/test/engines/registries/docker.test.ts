/** Registries once more in containers: every tool as typed, and what is refused. */

import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { archive, importInto } from "../../../../../images/build.mjs";
import { DOCKER_DEFAULTS } from "../../../src/backends/docker/config.ts";
import { testEngine } from "../../backends/docker/docker-harness.ts";
import { usingEngine } from "../../backends/docker/using-engine.ts";
import { inNetwork } from "./in-network.ts";
import { RUST, toolchain } from "./toolchain.ts";

interface Outcome {
  readonly results: readonly { readonly exitCode: number | null; readonly output: string }[];
  readonly found: readonly string[];
  readonly leaks: readonly unknown[];
  readonly writes: readonly unknown[];
}

/** Debian's packages are fetched and unpacked, once. */
const MAKING_MS = 480_000;
const PROGRAM = new URL("./registry-program.ts", import.meta.url);
const GO = "/opt/go";

usingEngine("registries in containers", await testEngine(), (engine) => {
  const { image } = DOCKER_DEFAULTS;
  const { rust, go } = toolchain();
  const fleet = { backend: "docker", docker: { host: engine.host } };
  const order = { fleet, checksums: "right", named: true, attempts: false, mounts: [] };
  const mounts = [
    ...(go === null || !existsSync(go) ? [] : [{ hostPath: dirname(go), sandboxPath: GO }]),
    ...(rust === null ? [] : [{ hostPath: rust, sandboxPath: RUST }]),
  ];
  const path = `export PATH=${GO}/bin:${RUST}/bin:$PATH`;
  const installs = [
    ["pip", "pip install samplepy && python3 -c 'import samplepy; print(samplepy.said)'", "python from"],
    ["npm", "npm i -g samplejs && samplejs", "node from"],
    ...(go === null ? [] : [["go", `${path}; go install example.test/hello@latest && hello`, "go from"]]),
    // The image has no linker: what is fetched is not built.
    ...(rust === null
      ? []
      : [
          [
            "cargo",
            `${path}; cd /tmp && cargo new -q app && cd app && cargo add samplers && cargo fetch && ls ~/.cargo/registry/cache/*`,
            "samplers-1.0.0.crate",
          ],
        ]),
  ] as const;

  describe("registries in containers", () => {
    beforeAll(() => {
      archive();
      importInto({ host: engine.host, tag: image });
    }, MAKING_MS);

    it.each([
      ["with", true],
      ["without", false],
    ])("every tool installs as typed, %s credentials", { timeout: 900_000 }, async (_, withCredentials) => {
      const commands = installs.map(([, command]) => command);
      const outcome = await inNetwork<Outcome>(PROGRAM, { ...order, withCredentials, commands, mounts });
      for (const [index, [name = "", , said]] of installs.entries()) {
        const { exitCode, output } = outcome.results[index]!;
        expect(output, name).toContain(said);
        expect(exitCode, `${name}: ${output}`).toBe(0);
      }
      expect(outcome.leaks).toEqual([]);
      expect(outcome.writes).toEqual([]);
    });

    it("refuses to publish, and fifty attempts find no credential", { timeout: 900_000 }, async () => {
      const commands = ["curl -sS -X PUT -d '{}' https://index.test:8443/npm/samplejs"];
      const wish = { ...order, withCredentials: true, commands, attempts: true };
      const { results, found, writes } = await inNetwork<Outcome>(PROGRAM, wish);
      expect(results[0]!.output).toContain("registry-read-only");
      expect(found).toEqual([]);
      expect(writes).toEqual([]);
    });
  });
});
