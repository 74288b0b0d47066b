/**
 * `sandlot egress-proxy` as a process, in namespaces: real daemons forward to it, programs reach an outside through it, and
 * a gateway fetches what was refused.
 */

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { EGRESS_PORT, type PresharedKey, PSK_TLS } from "@sandlot/contract";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { daemonFile } from "../../../../sandboxd/test/start-daemon.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import { podNetwork } from "../../../src/host/egress/cluster/pod-network.ts";
import type { RefusalPage } from "../../../src/host/egress/cluster/refusal-ring.ts";
import { FleetKeys } from "../../../src/sandboxd/fleet-keys.ts";
import { NetworkStage, stageProblem } from "./stage/stage.ts";

const execute = promisify(execFile);
const problem = stageProblem("curl");
const SOURCE = ["--conditions=sandlot-source"];
const MAIN = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));
const HTTPS_SECRET = "a-value-of-the-proxy-alone";
const BLUEPRINTS = {
  default: {
    network: {
      mode: "allowlist",
      allow: [
        { host: "public.example", ports: [80] },
        { host: "private.example", ports: [80] },
        { host: "api.example.com", ports: [443] },
      ],
      secrets: [
        {
          name: "api",
          host: "api.example.com",
          header: "authorization",
          prefix: "Bearer ",
          value: HTTPS_SECRET,
          via: "https",
        },
      ],
    },
  },
  narrow: { network: { mode: "allowlist", allow: [{ host: "api.example.com", ports: [443] }] } },
} as const;
const KEYS_TEXT = `k2:${Buffer.alloc(32, 2).toString("base64")}\nk1:${Buffer.alloc(32, 1).toString("base64")}\n`;
const KEYS = FleetKeys.parse(KEYS_TEXT, "keys");
const OLD_KEYS = FleetKeys.parse(KEYS_TEXT.split("\n")[1] ?? "", "keys");
const SETTINGS = resolveSettings({ blueprints: BLUEPRINTS }, process.env);

let stage: NetworkStage;
let machine = "";
let proxy: ChildProcess;
let ports = { port: 0, canaryPort: 0 };
let nextPort = EGRESS_PORT;
const daemons: ChildProcess[] = [];

beforeAll(async () => {
  if (problem !== null) return;
  stage = await NetworkStage.open();
  machine = (await stage.run("sh", "-c", "echo $PPID")).trim();
  const [config, keys, ca] = ["sandlot.json", "keys", "outside.pem"].map((name) => join(stage.directory, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(config, JSON.stringify({ blueprints: BLUEPRINTS }));
  writeFileSync(keys, KEYS_TEXT);
  writeFileSync(ca, stage.outsideAuthority.certificatePem);
  const args = [MAIN, "egress-proxy", "-c", config, "--keys", keys, "--host", "127.0.0.1", "--port", "0"];
  proxy = spawn(
    "nsenter",
    [...inMachine(), process.execPath, ...SOURCE, ...args, "--canary-port", "0", "--drain", "100ms", "--json"],
    {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, NODE_EXTRA_CA_CERTS: ca, SANDLOT_HOME: stage.directory },
    },
  );
  const [line] = await once(proxy.stdout as NodeJS.ReadableStream, "data");
  ports = JSON.parse(String(line)) as typeof ports;
});
afterAll(async () => {
  if (problem !== null) return;
  for (const daemon of daemons) daemon.kill("SIGKILL");
  const gone = once(proxy, "exit");
  proxy.kill("SIGTERM");
  await gone;
  await stage.close();
});
beforeEach((context) => {
  if (problem !== null) context.skip(problem);
});

describe("a sandbox reaches", () => {
  it("what its allow list has, through its daemon's forward", async () => {
    const { at } = await sandbox("aaaa");
    expect(await curl("-x", at, "http://public.example/")).toMatchObject({ status: 200 });
  });

  it("what it may with a key of the fleet's older key, too", async () => {
    const { at } = await sandbox("abab", { keys: OLD_KEYS });
    expect(await curl("-x", at, "http://public.example/")).toMatchObject({ status: 200 });
  });

  it("a host with a bound secret, which the proxy adds and the sandbox never has", async () => {
    const { at, environment, directory } = await sandbox("bbbb");
    const bundle = environment.SSL_CERT_FILE ?? "";
    expect(bundle).toBe(`${directory}/ca-bundle.pem`);
    const answer = await curl("-x", at, "--cacert", bundle, "https://api.example.com/");
    expect(answer.status).toBe(200);
    expect(JSON.stringify(environment)).not.toContain(HTTPS_SECRET);
    // The outside tells which headers it got. The value itself is taken out of what comes back.
    expect(answer.body).toContain("authorization");
    expect(answer.body).not.toContain(HTTPS_SECRET);
  });

  it("nothing else, and the gateway learns of it", async () => {
    const { at } = await sandbox("cccc");
    expect(await curl("-x", at, "http://elsewhere.example/")).toMatchObject({ status: 403 });
    expect(await curl("-x", at, "http://private.example/")).toMatchObject({ status: 403 });
    const page = await refusals({ epoch: null, next: 0 });
    expect(page.refusals.filter(({ sandboxId }) => sandboxId === "cccc")).toMatchObject([
      { refusal: { host: "elsewhere.example", port: 80, rule: "not-allowed" } },
      { refusal: { host: "private.example", port: 80, rule: "address-not-public" } },
    ]);
    expect(await refusals(page)).toMatchObject({ refusals: [], lost: 0, next: page.next });
  });

  it("only what its own blueprint allows", async () => {
    const { at } = await sandbox("dddd", { blueprint: "narrow" });
    expect(await curl("-x", at, "http://public.example/")).toMatchObject({ status: 403 });
  });

  it("nothing when the proxy does not know its blueprint, and is told so", async () => {
    const { at } = await sandbox("eeee", { blueprintHash: "0".repeat(32) });
    const answer = await curl("-x", at, "http://public.example/");
    expect(answer.status).toBe(503);
    expect(answer.body).toContain("does not know the blueprint");
  });
});

describe("the proxy refuses", () => {
  const owner = { sandboxId: "ffff", blueprintHash: "" };
  const defaultHash = () => SETTINGS.blueprints.default?.hash ?? "";

  it("a key for another sandbox, purpose or fleet, and everything without a key", async () => {
    const good = KEYS.issue("egress", { ...owner, blueprintHash: defaultHash() });
    expect(await handshake(good)).toBe("secure");
    const narrow = KEYS.issue("egress", { ...owner, blueprintHash: SETTINGS.blueprints.narrow?.hash ?? "" });
    expect(await handshake({ identity: good.identity, key: narrow.key })).not.toBe("secure");
    expect(await handshake({ ...good, identity: good.identity.replace("ffff", "aaaa") })).not.toBe("secure");
    expect(await handshake(KEYS.issue("daemon", { ...owner, blueprintHash: defaultHash() }))).not.toBe("secure");
    const foreign = FleetKeys.parse(`k1:${Buffer.alloc(32, 9).toString("base64")}`, "keys");
    expect(await handshake(foreign.issue("egress", { ...owner, blueprintHash: defaultHash() }))).not.toBe("secure");
    expect(await handshake(null)).not.toBe("secure");
    const plain = await inNamespace("curl", "-s", "-m", "5", `http://127.0.0.1:${ports.port}/`).catch(() => "refused");
    expect(plain).toBe("refused");
  });

  it("refusals to a sandbox: its key reaches the proxy only", async () => {
    const { at } = await sandbox("gggg");
    const answer = await curl("-x", at, `http://127.0.0.1:${ports.port}/refusals`);
    expect(answer.status).toBe(403);
    expect((await curl(`${at}/refusals`)).body).not.toContain("epoch");
  });
});

describe("the canary port", () => {
  it("accepts a connection and says nothing", async () => {
    const reached = `require("net").connect(${ports.canaryPort},"127.0.0.1").on("connect",()=>console.log("reached")).on("error",()=>{})`;
    expect(await inNamespace(process.execPath, "-e", reached)).toBe("reached\n");
  });

  it("ends a daemon that reaches it, before it listens or forwards", async () => {
    const started = sandbox("hhhh", { canary: { host: "127.0.0.1", port: ports.canaryPort, timeoutMs: 300 } });
    await expect(started).rejects.toThrow("ended with 3");
  });
});

interface SandboxWish {
  readonly keys?: FleetKeys;
  readonly blueprint?: keyof typeof BLUEPRINTS;
  readonly blueprintHash?: string;
  readonly canary?: { host: string; port: number; timeoutMs: number };
}

/** A daemon in the machine's namespace, configured as a pod's. */
async function sandbox(sandboxId: string, wish: SandboxWish = {}) {
  const { keys = KEYS, blueprint = "default" } = wish;
  const named = SETTINGS.blueprints[blueprint];
  if (named === undefined) throw new Error("no such blueprint");
  const owner = { sandboxId, blueprintHash: wish.blueprintHash ?? named.hash };
  const directory = join(stage.directory, `trust-${sandboxId}`);
  const { network } = named.blueprint;
  const { environment, trust } = podNetwork({
    policy: { mode: network.mode, allow: network.allow, secrets: network.secrets ?? [] },
    directory,
    authoritySeed: Buffer.from(keys.issue("authority", owner).key, "hex"),
    nowMs: Date.now(),
  });
  const inner = nextPort++;
  const file = join(stage.directory, `${sandboxId}.json`);
  const forward = { port: inner, to: { host: "127.0.0.1", port: ports.port, psk: keys.issue("egress", owner) } };
  const listen = { path: join(stage.directory, `${sandboxId}.s`) };
  const config = { sandboxId, generation: 1, token: "token", listen, ready: { fd: 4 }, forward };
  writeFileSync(file, JSON.stringify({ ...config, ...(trust && { trust }), canary: wish.canary }));
  const program = [process.execPath, await daemonFile(), "--config-file", file];
  const daemon = spawn("nsenter", [...inMachine(), ...program], {
    stdio: ["ignore", "ignore", "ignore", "ignore", "pipe"],
  });
  daemons.push(daemon);
  const ended = once(daemon, "exit").then(([code]) => `ended with ${code}`);
  const ready = once(daemon.stdio[4] as NodeJS.ReadableStream, "data").then(() => null);
  const outcome = await Promise.race([ready, ended]);
  if (outcome !== null) throw new Error(outcome);
  return { at: `http://127.0.0.1:${inner}`, environment, directory };
}

function inMachine(): readonly string[] {
  return ["-t", machine, "-n", "-m", "--"];
}

async function inNamespace(...command: readonly string[]): Promise<string> {
  return (await execute("nsenter", [...inMachine(), ...command])).stdout;
}

async function curl(...args: readonly string[]): Promise<{ status: number; body: string }> {
  const text = await inNamespace("curl", "-sS", "-m", "10", "-w", "\n%{http_code} %{http_connect}", ...args).catch(
    (error: { stdout: string }) => error.stdout,
  );
  const at = text.lastIndexOf("\n");
  const [status = "0", connect = "0"] = text.slice(at + 1).split(" ");
  return { status: Number(status) || Number(connect), body: text.slice(0, at) };
}

/** `secure`, or why not. */
async function handshake(psk: PresharedKey | null): Promise<string> {
  const keyed = `...${JSON.stringify(PSK_TLS)}, pskCallback: () => ({ psk: Buffer.from("${psk?.key}", "hex"), identity: "${psk?.identity}" })`;
  const script = `
    const socket = require("tls").connect({ host: "127.0.0.1", port: ${ports.port}, checkServerIdentity: () => undefined,
      rejectUnauthorized: false, ${psk === null ? "" : keyed} });
    const end = (text) => { console.log(text); process.exit(); };
    socket.on("secureConnect", () => end("secure")).on("error", (error) => end(error.code)).on("close", () => end("closed"));`;
  return (await inNamespace(process.execPath, "-e", script)).trim();
}

/** As a gateway does it, by the real reader. */
async function refusals(cursor: { epoch: string | null; next: number }): Promise<RefusalPage> {
  const here = (path: string) => fileURLToPath(new URL(`../../../src/${path}`, import.meta.url));
  const file = join(stage.directory, "read.mts");
  writeFileSync(
    file,
    `import { fetchRefusals } from "${here("host/egress/cluster/refusal-reader.ts")}";
     import { dial } from "${here("sandboxd/dial.ts")}";
     import { systemWorld } from "${here("world/system-world.ts")}";
     const world = systemWorld();
     const address = { host: "127.0.0.1", port: ${ports.port}, keys: ${JSON.stringify(KEYS.ofFleet("refusals"))} };
     console.log(JSON.stringify(await fetchRefusals(() => dial(address, world.timer), ${JSON.stringify(cursor)}, world)));`,
  );
  return JSON.parse(await inNamespace(process.execPath, ...SOURCE, file)) as RefusalPage;
}
