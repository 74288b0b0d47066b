/**
 * Packages from the machine's own registries: each tool as typed in a local sandbox, against registries of its protocol
 * in a network namespace, through the real proxy.
 */

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { stageProblem } from "../../host/egress/stage/stage.ts";
import { inNetwork } from "./in-network.ts";

interface Outcome {
  readonly results: readonly { readonly command: string; readonly exitCode: number | null; readonly output: string }[];
  readonly found: readonly string[];
  readonly leaks: readonly unknown[];
  readonly writes: readonly unknown[];
}

const PROGRAM = new URL("./registry-program.ts", import.meta.url);
const problem = stageProblem("bwrap", "python3", "tar");

function run(wish: Record<string, unknown>, isOrdinary = false): Promise<Outcome> {
  const order = { backend: "local", withCredentials: true, named: true, commands: [], attempts: false, mounts: [] };
  return inNetwork<Outcome>(PROGRAM, { ...order, ...wish }, isOrdinary);
}

/** Programs that a sandbox does not see by itself. */
function toolchain(): { mounts: { hostPath: string; sandboxPath: string }[]; cargo: string | null; go: string | null } {
  const go = ["/usr/local/go/bin", "/usr/lib/go/bin"].find((path) => existsSync(join(path, "go"))) ?? null;
  try {
    const cargo = execFileSync("env", ["rustup", "which", "cargo"], { encoding: "utf8" }).trim();
    return { mounts: [{ hostPath: dirname(dirname(cargo)), sandboxPath: "/opt/rust" }], cargo: "/opt/rust/bin", go };
  } catch {
    return { mounts: [], cargo: existsSync("/usr/bin/cargo") ? "/usr/bin" : null, go };
  }
}

const { mounts, cargo, go } = toolchain();
const path = `export PATH=${[cargo, go].filter((part) => part !== null).join(":")}:$PATH`;
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
    // An ordinary user cannot read root's toolchain.
    const usable = INSTALLS.filter(([name]) => !isOrdinary || !name.startsWith("cargo"));
    const commands = usable.map(([, command]) => command);
    const outcome = await run({ withCredentials, commands, mounts: isOrdinary ? [] : mounts }, isOrdinary);
    expect(commands.length).toBeGreaterThanOrEqual(2);
    for (const [index, [name, , said]] of usable.entries()) {
      const { exitCode, output } = outcome.results[index]!;
      expect(output, name).toContain(said);
      expect(exitCode, `${name}: ${output}`).toBe(0);
    }
    expect(outcome.leaks).toEqual([]);
    expect(outcome.writes).toEqual([]);
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
