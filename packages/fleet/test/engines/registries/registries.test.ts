/**
 * Packages from the machine's own registries: each tool as typed in a local sandbox, against registries of its protocol
 * in a network namespace, through the real proxy.
 */

import { mkdtempSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { stageProblem } from "../../host/egress/stage/stage.ts";
import { type InNetworkOptions, inNetwork } from "./in-network.ts";
import { RUST, toolchain } from "./toolchain.ts";

interface Outcome {
  readonly results: readonly { readonly command: string; readonly exitCode: number | null; readonly output: string }[];
  readonly found: readonly string[];
  readonly leaks: readonly unknown[];
  readonly lookups: number;
  readonly writes: readonly unknown[];
}

const PROGRAM = new URL("./registry-program.ts", import.meta.url);
const problem = stageProblem("bwrap", "python3", "tar");

function run(wish: Record<string, unknown>, options: InNetworkOptions = {}): Promise<Outcome> {
  const usual = { fleet: { backend: "local" }, withCredentials: true, checksums: "right", named: true };
  const order = { ...usual, commands: [], attempts: false, mounts: [] };
  return inNetwork<Outcome>(PROGRAM, { ...order, ...wish }, options);
}

const { rust, cargo, go, path } = toolchain();
const mounts = rust === null ? [] : [{ hostPath: rust, sandboxPath: RUST }];
const INSTALLS = [
  [
    "pip",
    "/usr/bin/python3 -m pip install samplepy && /usr/bin/python3 -c 'import samplepy; print(samplepy.said)'",
    "python from",
  ],
  ["npm", "npm i -g samplejs && samplejs", "node from"],
  ...(cargo === null ? [] : [["cargo", `${path}; cargo install samplers && samplers`, "rust from"]]),
  ...(cargo === null
    ? []
    : [
        [
          "cargo add",
          `${path}; cd /tmp && cargo new -q app && cd app && cargo add samplers && cargo fetch`,
          "Adding samplers",
        ],
      ]),
  ...(go === null ? [] : [["go", `${path}; go install example.test/hello@latest && hello`, "go from"]]),
] as const;

describe.skipIf(problem !== null)(`registries of this machine (${problem ?? "in a network namespace"})`, () => {
  it.each([
    ["with credentials", true, false],
    ["without credentials", false, false],
    ["as an ordinary user", true, true],
  ])("every tool installs as typed, %s", { timeout: 900_000 }, async (_, withCredentials, isOrdinary) => {
    const commands = INSTALLS.map(([, command]) => command);
    const place = mkdtempSync(join(tmpdir(), "sl-rust-"));
    // An ordinary user cannot look into root's home, where the toolchain is.
    const shown = isOrdinary && rust !== null ? { from: rust, to: place } : undefined;
    const seen = shown === undefined ? mounts : [{ hostPath: place, sandboxPath: RUST }];
    const outcome = await run({ withCredentials, commands, mounts: seen }, { isOrdinary, shown });
    rmdirSync(place);
    expect(commands.length).toBeGreaterThanOrEqual(2);
    for (const [index, [name, , said]] of INSTALLS.entries()) {
      const { exitCode, output } = outcome.results[index]!;
      expect(output, name).toContain(said);
      expect(exitCode, `${name}: ${output}`).toBe(0);
    }
    expect(outcome.leaks).toEqual([]);
    expect(outcome.writes).toEqual([]);
    expect(outcome.lookups > 0, "Go asks the checksum database on the second host").toBe(go !== null);
  });

  it.skipIf(go === null)(
    "Go refuses a module that its checksum database contradicts",
    { timeout: 600_000 },
    async () => {
      const commands = [`${path}; go install example.test/hello@latest`];
      const { results, lookups } = await run({ withCredentials: false, checksums: "wrong", commands });
      expect(results[0]!.exitCode).not.toBe(0);
      expect(results[0]!.output).toContain("SECURITY ERROR");
      expect(lookups).toBeGreaterThan(0);
    },
  );

  it("an environment is built from them, for sandboxes without a network", { timeout: 900_000 }, async () => {
    const lines = [
      "/usr/bin/python3 -m pip install samplepy",
      "npm i -g samplejs",
      ...(go === null ? [] : [`${path}; go install example.test/hello@latest`]),
    ];
    const commands = [
      "/usr/bin/python3 -c 'import samplepy; print(samplepy.said)'; samplejs",
      ...(go === null ? [] : ["hello"]),
      "/usr/bin/python3 -c 'import socket; print(len(socket.if_nameindex()))'; env | grep -c -i proxy",
      "grep -rs -e pw-7Qz -e tok-Kd83 /opt/env ~ | head",
    ];
    const { results, leaks, writes } = await run({ script: lines.join("\n"), commands });
    const said = results.map(({ output }) => output.trim());
    expect(said[0]).toContain("python from the registry\nnode from the registry");
    if (go !== null) expect(said[1]).toContain("go from the registry");
    expect(said.at(-2)).toBe("1\n0");
    expect(said.at(-1)).toBe("");
    expect({ leaks, writes }).toEqual({ leaks: [], writes: [] });
  });

  it("refuses to publish and to browse, and fifty attempts find no credential", { timeout: 900_000 }, async () => {
    const base = "https://index.test:8443";
    const commands = [
      `curl -sS -X PUT -d '{}' ${base}/npm/samplejs`,
      `curl -sS -X POST --data-binary x ${base}/pip/simple/`,
      `curl -sS ${base}/admin/users`,
      `curl -sS --path-as-is ${base}/npm/../admin/users`,
      `curl -sS --path-as-is ${base}/npm/%2e%2e/admin/users`,
      `curl -sS ${base}/npm/samplejs | head -c 60`,
      "curl -sS https://elsewhere.test:8443/",
      "cat /run/sandlot/egress/npmrc /.cargo/config.toml; env | grep -E 'PIP|GO|CARGO'",
    ];
    const { results, found, writes } = await run({ commands, attempts: true });
    const [put, post, browse, dots, encoded, read, , files] = results.map(({ output }) => output);
    for (const refused of [put, post]) expect(refused).toContain("registry-read-only");
    expect(put).toContain("network.registries");
    for (const refused of [browse, dots, encoded]) expect(refused).toContain("registry-path");
    expect(read).toContain('"name":"samplejs"');
    expect(files).toContain("index.test:8443");
    expect(files).not.toContain("direct");
    expect(found).toEqual([]);
    expect(writes).toEqual([]);
  });

  it("a file of the machine is no consent to a private address", { timeout: 300_000 }, async () => {
    const { results } = await run({ named: false, commands: ["curl -sSv https://index.test:8443/npm/samplejs 2>&1"] });
    expect(results[0]!.output).toContain("address-not-public");
  });
});
