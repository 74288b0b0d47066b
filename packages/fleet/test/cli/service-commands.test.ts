/** `serve`, `keys`, `bench` and `doctor`: the precedence of settings, the errors, and the measurements. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { runHere } from "./run-here.ts";

const root = mkdtempSync(join(tmpdir(), "sls-"));
const environment = { SANDLOT_HOME: join(root, "home"), SANDLOT_BACKEND: "memory" };
afterAll(() => rmSync(root, { recursive: true }));

const cli = (args: readonly string[], more: Record<string, string> = {}, until?: RegExp) =>
  runHere(args, { ...environment, ...more }, until);

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

describe("what serve prints", () => {
  it("prints a first command that a shell takes as it is, whatever the home is called", async () => {
    const home = join(root, "Ann's home");
    const { stdout } = await cli(["serve", "--port", "0"], { SANDLOT_HOME: home }, /Content-Type/);
    const [, words = ""] = /\$\((cat .*)\)"/.exec(stdout) ?? [];
    const { stdout: key } = spawnSync("bash", ["-c", words], { encoding: "utf8" });
    expect(key).toBe(readFileSync(join(home, "operator.key"), "utf8"));
  });

  it("knows the levels of its log", async () => {
    const { code, stderr } = await cli(["serve", "--port", "0", "--log-level", "loud"]);
    expect(code).toBe(2);
    expect(stderr).toContain("Allowed choices are silent, error, warn, info, debug");
  });
});

describe("keys", () => {
  it("an unknown key cannot be revoked, and the command says so", async () => {
    const { key, ...about } = JSON.parse((await cli(["keys", "create", "--scope", "operator", "--json"])).stdout);
    expect(key).toEqual(expect.any(String));
    const mistyped = await cli(["keys", "revoke", `${about.id}0`]);
    expect(mistyped).toMatchObject({ code: 1, stdout: "", stderr: expect.stringContaining("sandlot keys list") });
    expect(await cli(["keys", "revoke", about.id])).toMatchObject({ code: 0, stderr: "" });
    expect((await cli(["keys", "create", "--scope", "root"])).code).toBe(2);
  });
});

describe("config", () => {
  const file = (name: string, text: string) => {
    writeFileSync(join(root, name), text);
    return join(root, name);
  };

  it("check looks at the gateway too", async () => {
    const open = await cli(["config", "check", file("open.yaml", "gateway: { host: 0.0.0.0 }\n")]);
    expect(open).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("gateway.host: 0.0.0.0 is beyond loopback"),
    });
    const right = await cli(["config", "check", file("six.yaml", 'gateway: { host: "::1", port: 9 }\n')]);
    expect(right).toMatchObject({ code: 0, stdout: expect.stringMatching(/gateway +\[::1\]:9\n/) });
  });

  it("import leaves an existing file alone, and says so in a line", async () => {
    const from = file("deerflow.yaml", "sandbox: { replicas: 2 }\n");
    const into = file("existing.yaml", "mine\n");
    const { code, stderr } = await cli(["config", "import", "deerflow", from, "-o", into]);
    expect(code).toBe(1);
    expect(stderr).toContain("existing.yaml exists already and is left alone");
    expect(stderr).not.toContain("    at ");
    expect(readFileSync(into, "utf8")).toBe("mine\n");
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

describe("doctor, of the home", () => {
  it("tries whether it can be written", async () => {
    const { stdout } = await cli(["doctor", "--json"], { SANDLOT_HOME: "/proc/none/such" });
    const { ready, findings } = JSON.parse(stdout) as { ready: boolean; findings: { name: string; status: string }[] };
    expect(ready).toBe(false);
    expect(findings.find(({ name }) => name === "home")).toMatchObject({
      status: "fail",
      detail: expect.stringMatching(/^\/proc.* cannot be written \(E[A-Z]+\)$/),
    });
  });
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
