/** The life of a proxy's process: joined, replaced, taken over, ended. Nothing here leaves the machine. */

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import type { NetworkPolicy } from "../../../src/backend/network/policy.ts";
import type { Egress } from "../../../src/host/egress/process/connection.ts";
import { type StartEgressOptions, startEgress, stopEgress } from "../../../src/host/egress/process/start-egress.ts";
import type { Refusal } from "../../../src/host/egress/rules/decide.ts";
import { sandboxNetwork } from "../../../src/host/egress/sandbox-side/sandbox-network.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { asOrdinaryUser, ordinaryNode, seenByOrdinaryUser } from "../../support/ordinary-user.ts";
import { ask } from "./stage/clients.ts";
import { proxyDirectory } from "./stage/inside.ts";
import { stageProblem } from "./stage/stage.ts";

const world = systemWorld();
const policy: NetworkPolicy = { mode: "allowlist", allow: [{ host: "api.example.com", ports: [443] }], secrets: [] };
const secretPolicy: NetworkPolicy = {
  ...policy,
  secrets: [{ name: "key", host: "api.example.com", header: "x-key", value: "first-value-0123", via: "https" }],
};

function place(): Pick<StartEgressOptions, "directory" | "sandboxId" | "world" | "way"> & { socketPath: string } {
  const { path, remove } = proxyDirectory();
  onTestFinished(async () => {
    await stopEgress({ directory: path, world });
    remove();
  });
  return { directory: path, sandboxId: "s1", way: "socket", world, socketPath: join(path, "inside", "proxy.sock") };
}

const refusedBy = async (socketPath: string, host = "evil.example") => {
  const { status } = await ask(socketPath, { url: `http://${host}/` });
  return status;
};

const isRunning = ({ identity }: Egress) => world.processLiveness(identity) === "alive";

describe("a proxy's process", () => {
  it("is joined by a later fleet, and both get its refusals", async () => {
    const at = place();
    const heard: [Refusal[], Refusal[]] = [[], []];
    const first = await startEgress({ ...at, policy, onRefused: (refusal) => heard[0].push(refusal) });
    const second = await startEgress({ ...at, policy, onRefused: (refusal) => heard[1].push(refusal) });
    expect(second.identity).toEqual(first.identity);
    expect(await refusedBy(at.socketPath)).toBe(403);
    await expect
      .poll(() => heard.map((list) => list.map(({ host }) => host)))
      .toEqual([["evil.example"], ["evil.example"]]);
    first.detach();
    await first.closed;
    expect(await second.stats()).toMatchObject({ requests: 1, refused: 1 });
    expect(isRunning(second)).toBe(true);
    await second.stop();
    await expect.poll(() => isRunning(second)).toBe(false);
  });

  it("outlives the process that started it", async () => {
    const at = place();
    const file = fileURLToPath(new URL("./stage/starts-and-dies.ts", import.meta.url));
    const child = spawn(process.execPath, ["--conditions=sandlot-source", file], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    child.stdin.end(JSON.stringify({ directory: at.directory, sandboxId: at.sandboxId, way: at.way, policy }));
    const [, signal] = await once(child, "exit");
    expect(signal).toBe("SIGKILL");
    expect(await refusedBy(at.socketPath)).toBe(403);
    const joined = await startEgress({ ...at, policy });
    expect(await joined.stats()).toMatchObject({ requests: 1 });
  });

  it("is taken over when it was killed: same paths, same certificate", async () => {
    const at = place();
    const first = await startEgress({ ...at, policy: secretPolicy });
    const trusted = readFileSync(join(at.directory, "inside", "ca.pem"), "utf8");
    process.kill(first.identity.pid, "SIGKILL");
    await first.closed;
    const second = await startEgress({ ...at, policy: secretPolicy });
    expect(second.identity.pid).not.toBe(first.identity.pid);
    expect(await refusedBy(at.socketPath)).toBe(403);
    expect(readFileSync(join(at.directory, "inside", "ca.pem"), "utf8")).toBe(trusted);
  });

  it("is replaced when the policy or a secret has changed", async () => {
    const at = place();
    const first = await startEgress({ ...at, policy: secretPolicy });
    const rotated = { ...secretPolicy, secrets: [{ ...secretPolicy.secrets[0]!, value: "second-value-456" }] };
    const second = await startEgress({ ...at, policy: rotated });
    await first.closed;
    await expect.poll(() => isRunning(first)).toBe(false);
    expect(second.identity.pid).not.toBe(first.identity.pid);
  });

  it("is replaced when it is stuck, and ended when it is stuck", async () => {
    const at = place();
    const first = await startEgress({ ...at, policy });
    process.kill(first.identity.pid, "SIGSTOP");
    const second = await startEgress({ ...at, policy });
    expect(isRunning(first)).toBe(false);
    expect(await refusedBy(at.socketPath)).toBe(403);
    process.kill(second.identity.pid, "SIGSTOP");
    await stopEgress(at);
    await expect.poll(() => isRunning(second)).toBe(false);
  });

  it("does not flood its listeners", async () => {
    const at = place();
    const told: number[] = [];
    const egress = await startEgress({
      ...at,
      policy,
      limits: { refusalsToldPerSecond: 3 },
      onRefused: (_, untold) => told.push(untold),
    });
    for (let round = 0; round < 30; round += 1) await refusedBy(at.socketPath);
    await sleep(1_100);
    await refusedBy(at.socketPath);
    expect(await egress.stats()).toMatchObject({ refused: 31 });
    await expect.poll(() => told.reduce((sum, untold) => sum + untold + 1, 0)).toBe(31);
    expect(told.length).toBeLessThan(20);
  });

  it("is one in the end when several start it at once", async () => {
    const at = place();
    const started = await Promise.all([1, 2, 3].map(() => startEgress({ ...at, policy })));
    await expect.poll(() => new Set(started.filter(isRunning).map(({ identity }) => identity.pid)).size).toBe(1);
    expect(await refusedBy(at.socketPath)).toBe(403);
    expect(readdirSync(join(at.directory, "inside"))).toEqual(["proxy.sock"]);
  });

  it("ends with the process that it watches", async () => {
    const at = place();
    const sandbox = spawn("sleep", ["60"]);
    const egress = await startEgress({ ...at, policy });
    const startTime = readFileSync(`/proc/${sandbox.pid}/stat`, "utf8").split(") ")[1]!.split(" ")[19]!;
    egress.watch({ ...world.identity, pid: sandbox.pid!, startTime });
    egress.detach();
    await sleep(2_500);
    expect(isRunning(egress)).toBe(true);
    sandbox.kill("SIGKILL");
    await expect.poll(() => isRunning(egress)).toBe(false);
  });

  it("ends when its directory is gone", async () => {
    const at = place();
    const egress = await startEgress({ ...at, policy });
    rmSync(at.directory, { recursive: true });
    await expect.poll(() => isRunning(egress)).toBe(false);
  });

  it("ends when it is never joined", async () => {
    const at = place();
    const egress = await startEgress({ ...at, policy, orphanTimeoutMs: 500 });
    await sleep(3_000);
    expect(isRunning(egress)).toBe(true);
    egress.detach();
    await expect.poll(() => isRunning(egress)).toBe(false);
  });

  it("says why it could not start", async () => {
    const at = place();
    const directory = join(at.directory, "d".repeat(90));
    await expect(startEgress({ ...at, directory, policy })).rejects.toMatchObject({
      code: "create_failed",
      message: expect.stringContaining("too many for the path of a socket"),
    });
  });

  it("costs little memory", async () => {
    const at = place();
    const egress = await startEgress({ ...at, policy: secretPolicy });
    expect(await refusedBy(at.socketPath)).toBe(403);
    const rollup = readFileSync(`/proc/${egress.identity.pid}/smaps_rollup`, "utf8");
    const ownKb = ["Private_Clean", "Private_Dirty"].reduce(
      (sum, name) => sum + Number(new RegExp(`${name}:\\s+(\\d+)`).exec(rollup)?.[1]),
      0,
    );
    console.log(`memory of an idle proxy: ${/Pss:.*/.exec(rollup)?.[0]}, private ${ownKb} kB`);
    expect(ownKb).toBeLessThan(80_000);
  });
});

describe("a sandbox's own network namespace", () => {
  const missing = stageProblem("bwrap", "curl", "setpriv");
  const file = fileURLToPath(new URL("./stage/take-over.ts", import.meta.url));
  const flags = "--conditions=sandlot-source";
  const as: Record<string, () => readonly string[]> = {
    "a root fleet": () => [process.execPath, flags, file],
    "an ordinary user's fleet": () => asOrdinaryUser(ordinaryNode(), flags, seenByOrdinaryUser(file)),
  };

  beforeEach((context) => {
    if (missing !== null) context.skip(missing);
  });

  it.each(Object.keys(as))("has its proxy back after that was killed, with %s", async (whose) => {
    const [program = "", ...args] = as[whose]!();
    const { stdout } = await promisify(execFile)(program, args);
    expect(JSON.parse(stdout)).toEqual({
      inside: expect.stringMatching(/^links 1 CapEff:\s0+$/),
      first: "403",
      without: "000",
      second: "403",
      stats: 1,
      left: "",
    });
  });
});

describe("the forwarder", () => {
  it("explains when there is no proxy, and finds one that comes later", async () => {
    const at = place();
    const egress = await startEgress({ ...at, policy });
    const [file] = sandboxNetwork(policy, at.directory, at.way)
      .mounts.map(({ hostPath }) => hostPath)
      .filter((path) => existsSync(path) && path.endsWith(".ts"));
    const port = 20_000 + (process.pid % 10_000);
    const forwarder = spawn(process.execPath, [file!, String(port), at.socketPath], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    onTestFinished(() => void forwarder.kill("SIGKILL"));
    await once(forwarder.stdout!, "data");
    // A connection each: a kept one may close just when it is reused.
    const status = async () => {
      const [response] = (await once(get({ port, host: "127.0.0.1", agent: false }), "response")) as [IncomingMessage];
      return [response.statusCode, await text(response)];
    };
    expect(await status()).toEqual([200, expect.stringContaining("api.example.com:443")]);
    await egress.stop();
    expect(await status()).toEqual([502, expect.stringContaining("does not run at the moment")]);
    await startEgress({ ...at, policy });
    expect((await status())[0]).toBe(200);
    expect(
      readFileSync(`/proc/${forwarder.pid}/cmdline`, "utf8") + readFileSync(`/proc/${forwarder.pid}/comm`, "utf8"),
    ).not.toMatch(/node/);
  });
});
