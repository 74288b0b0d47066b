/**
 * The AIO API against the original client: PyPI's `agent-sandbox`, the package that DeerFlow uses, unmodified.
 *
 *   npm run aio-clients -- [--version 0.0.30] [--python …/bin/python] [--url http://…]
 *
 * The package is installed into a temporary directory; this needs Python with `venv` and a package registry, or a
 * Python that has the package (`--python`). A daemon is started by hand, and python/run.py calls every method that the
 * client has for `/v1/sandbox`, `/v1/shell`, `/v1/bash` and `/v1/file`: with the token in each of its three places and
 * without one, by the synchronous and the asynchronous client. Then the same without a key through an AIO URL of a
 * gateway, and through the URL of its provisioner, into sandboxes of this machine. `--url` tests another server, without a key, instead.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { SandlotClient } from "@sandlot/client";
import { startGateway } from "../../packages/fleet/src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../packages/fleet/src/open-fleet.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";
import { bundle } from "../../packages/sandboxd/bundle.mjs";

const TOKEN = "the-token";
const RUN = fileURLToPath(new URL("./python/run.py", import.meta.url));

const { values } = parseArgs({
  options: { version: { type: "string", default: "0.0.30" }, python: { type: "string" }, url: { type: "string" } },
});

const place = mkdtempSync(join(tmpdir(), "sl-aio-clients-"));
process.on("exit", () => rmSync(place, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(130));
process.exitCode = await main();

async function main(): Promise<number> {
  const python = values.python ?? installed();
  if (python === null) return process.env.CI === "true" ? 1 : 0;
  if (values.url !== undefined) return drive(python, values.url, ["none"]);
  return (await driveDaemon(python)) + (await driveGateway(python)) === 0 ? 0 : 1;
}

async function driveDaemon(python: string): Promise<number> {
  const daemon = await startDaemon();
  try {
    const withKey = await drive(python, daemon.url, ["own-header", "bearer", "query"]);
    return withKey + (await drive(python, daemon.aioUrl, ["none"]));
  } finally {
    daemon.process.kill("SIGTERM");
    await once(daemon.process, "exit");
  }
}

/** As DeerFlow reaches a sandbox of a running fleet: by a URL, and with nothing else. */
async function driveGateway(python: string): Promise<number> {
  const home = join(place, "home");
  mkdirSync(home);
  const { fleet } = await openFleetAndHost({ home, backend: "local" });
  const gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 } });
  try {
    const { key } = await gateway.keys.create({ scope: "user", user: "deerflow" });
    const { url } = await new SandlotClient({ url: gateway.url, apiKey: key }).createAioUrl("clients");
    console.log("through an AIO URL of a gateway:");
    const status = await drive(python, url, ["none"]);
    console.log("through the URL that the gateway's provisioner answers with:");
    const provisioned = await drive(python, await provision(gateway.url, key), ["none"]);
    return status + provisioned;
  } finally {
    await gateway.close();
    await fleet.close({ destroy: true });
  }
}

/** As DeerFlow asks its provisioner. */
async function provision(gateway: string, key: string): Promise<string> {
  const response = await fetch(`${gateway}/api/sandboxes`, {
    method: "POST",
    headers: { "x-api-key": key, "content-type": "application/json" },
    body: JSON.stringify({ sandbox_id: "0123456789abcdef", thread_id: "provisioned", user_id: "deerflow" }),
  });
  if (!response.ok) throw new Error(`the provisioner answered ${response.status}: ${await response.text()}`);
  return ((await response.json()) as { sandbox_url: string }).sandbox_url;
}

/** The Python with the client; `null`, with a printed reason, if it is unavailable. */
function installed(): string | null {
  const python = join(place, "venv/bin/python");
  const steps = [
    ["python3", "-m", "venv", join(place, "venv")],
    // The package contains thousands of files that are never read.
    [python, "-m", "pip", "install", "--quiet", "--no-compile", `agent-sandbox==${values.version}`],
  ];
  for (const [program = "", ...args] of steps) {
    const { status, error, stderr } = spawnSync(program, args, { encoding: "utf8" });
    if (status === 0) continue;
    console.log(`skipped, there is no agent-sandbox ${values.version}: ${error?.message ?? stderr.trim()}`);
    return null;
  }
  return python;
}

/** Each place of the key, with both clients. Returns a status. */
async function drive(python: string, url: string, keys: readonly string[]): Promise<number> {
  let failed = 0;
  for (const key of keys)
    for (const client of ["waiting", "asynchronous"]) {
      const child = spawn(python, ["-B", RUN, url, client, key, TOKEN], { stdio: ["ignore", "inherit", "inherit"] });
      const [status] = await once(child, "exit");
      if (status !== 0) failed = 1;
    }
  return failed;
}

async function startDaemon(): Promise<{ process: ChildProcess; url: string; aioUrl: string }> {
  const { outfile } = await bundle(join(place, "sandboxd.cjs"));
  const workspace = join(place, "workspace");
  mkdirSync(workspace);
  symlinkSync(process.execPath, join(place, "sandboxd"));
  const anywhere = { host: "127.0.0.1", port: 0 };
  const config = {
    ...{ sandboxId: "sandbox-1", generation: 1, token: TOKEN, defaultCwd: workspace, environment: { HOME: place } },
    ...{ listen: anywhere, aioListen: anywhere, ready: { fd: 4 } },
  };
  const daemon = spawn(join(place, "sandboxd"), [outfile, "--config-fd", "3"], {
    env: { PATH: process.env.PATH, TMPDIR: place },
    stdio: ["ignore", "inherit", "inherit", "pipe", "pipe"],
  });
  (daemon.stdio[3] as Writable).end(JSON.stringify(config));
  const [line] = (await once(daemon.stdio[4] as Readable, "data")) as [Buffer];
  const { port, aioPort } = JSON.parse(line.toString());
  return { process: daemon, url: `http://127.0.0.1:${port}`, aioUrl: `http://127.0.0.1:${aioPort}` };
}
