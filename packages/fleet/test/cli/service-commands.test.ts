/** `serve`, `keys`, `bench` and `doctor`: what wins over what, what they say when they cannot, and what they measure. */

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { run } from "../../src/cli/program.ts";

const root = mkdtempSync(join(tmpdir(), "sls-"));
const environment = { SANDLOT_HOME: join(root, "home"), SANDLOT_BACKEND: "memory" };
afterAll(() => rmSync(root, { recursive: true }));

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** In this process: a start of Node for each would take longer than everything else here. */
async function cli(args: readonly string[], more: Record<string, string> = {}, until?: RegExp): Promise<Ended> {
  const stop = new AbortController();
  let [stdout, stderr] = ["", ""];
  const terminal = {
    out: (text: string) => {
      stdout += text;
      if (until?.test(stdout) === true) stop.abort();
    },
    error: (text: string) => {
      stderr += text;
    },
    write: async () => true,
    isWatched: false,
    stdin: process.stdin,
    size: () => ({ columns: 80, rows: 24 }),
    onResize: () => () => undefined,
    environment: { PATH: process.env.PATH ?? "", ...environment, ...more },
  };
  const code = await run(["node", "sandlot", ...args], terminal, stop.signal);
  return { code, stdout, stderr };
}

const listening = (text: string) => new URL((JSON.parse(text) as { listening: string }).listening);

describe("serve", () => {
  it("takes the file, then the environment, then flags", async () => {
    const file = join(root, "sandlot.yaml");
    const ports = [await freePort(), await freePort(), await freePort()].map(String);
    const [inFile = "", inEnvironment = "", asFlag = ""] = ports;
    writeFileSync(file, `home: ${join(root, "elsewhere")}\ngateway:\n  port: ${inFile}\n`);
    const serve = async (args: string[], more: Record<string, string>) =>
      listening((await cli(["serve", "--json", "-c", file, ...args], more, /\n/)).stdout).port;
    expect(await serve([], {})).toBe(inFile);
    expect(await serve([], { SANDLOT_PORT: inEnvironment })).toBe(inEnvironment);
    expect(await serve(["--port", asFlag], { SANDLOT_PORT: inEnvironment })).toBe(asFlag);
    // The home of the environment, not the file's.
    expect(readdirSync(root)).not.toContain("elsewhere");
    const wrong = await cli(["serve", "-c", file], { SANDLOT_PORT: "many" });
    expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringContaining("SANDLOT_PORT: it is not a whole number")]);
  });

  it("says what stands in its way, and opens nothing", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => taken.once("listening", resolve));
    const { port } = taken.address() as AddressInfo;
    const none = join(root, "none.pem");
    const garbled = join(root, "garbled.pem");
    writeFileSync(garbled, "no certificate");
    const cases: readonly (readonly [Record<string, string>, RegExp])[] = [
      [{ SANDLOT_PORT: String(port) }, /gateway\.port: 127\.0\.0\.1:\d+ is taken by another program/],
      [{ SANDLOT_PORT: "0", SANDLOT_PREVIEW_PORT: String(port) }, /gateway\.preview\.port: .* is taken/],
      [
        { SANDLOT_TLS_CERT: none, SANDLOT_TLS_KEY: none },
        /gateway\.tls\.certFile: .*none\.pem cannot be read \(ENOENT\)/,
      ],
      [{ SANDLOT_TLS_CERT: garbled, SANDLOT_TLS_KEY: garbled }, /gateway\.tls: .* no certificate with its private key/],
      [{ SANDLOT_HOST: "192.0.2.77", SANDLOT_BEHIND_PROXY: "true" }, /gateway\.host: .* no address of this machine/],
      [{ SANDLOT_HOME: join(garbled, "below") }, /not a directory/],
      // Where Node's own recursive mkdir would never come back.
      [{ SANDLOT_HOME: "/proc/none/such" }, /home: \/proc\/none\/such cannot be written \(ENOENT\)/],
    ];
    for (const [more, words] of cases) {
      const { code, stdout, stderr } = await cli(["serve"], { SANDLOT_PORT: "0", ...more });
      expect([code, stdout, stderr]).toEqual([1, "", expect.stringMatching(words)]);
    }
    taken.close();
  });
});

describe("bench", () => {
  it("measures every step, for people and for programs, and leaves no thread", async () => {
    const { code, stdout } = await cli(["bench", "--rounds", "2", "--json"]);
    expect(code).toBe(0);
    const { rounds, figures } = JSON.parse(stdout) as { rounds: number; figures: { name: string; p50Ms: number }[] };
    expect(rounds).toBe(2);
    expect(figures.map(({ name }) => name)).toEqual([
      ...["acquire, made anew", "acquire, parked", "acquire, held", "exec true"],
      ...["write 64 KiB", "read 64 KiB", "send 16 MiB", "fetch 16 MiB"],
    ]);
    expect(figures.every(({ p50Ms }) => p50Ms > 0)).toBe(true);
    expect((await cli(["bench", "--rounds", "1"])).stdout).toMatch(/^STEP +TIMES +P50 MS/);
    expect(JSON.parse((await cli(["ps", "--json"])).stdout)).toEqual({ sandboxes: [] });
    expect((await cli(["bench", "--rounds", "0"])).code).toBe(1);
  });
});

describe("doctor", () => {
  it("finds an engine that is not there", async () => {
    const more = { SANDLOT_BACKEND: "docker", DOCKER_HOST: `unix://${join(root, "none.sock")}` };
    const { code, stdout } = await cli(["doctor", "--json"], more);
    const { ready, findings } = JSON.parse(stdout) as { ready: boolean; findings: { name: string; status: string }[] };
    expect([code, ready]).toEqual([1, false]);
    expect(findings.find(({ name }) => name === "engine")).toMatchObject({ status: "fail", fix: expect.any(String) });
  });
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
