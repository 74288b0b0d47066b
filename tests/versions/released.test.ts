/**
 * Released versions and this one, in every combination: each fixture in `fixtures/` is an unchanged version (`npm run
 * pack:fixture`). This checkout is packed too, so that there is always one, and a broken pack shows.
 */

import { type ChildProcess, spawn } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { brotliDecompressSync } from "node:zlib";
import { extract } from "tar-stream";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { NATIVE_FILES } from "../../packages/sandboxd/src/index.ts";
import { daemonFile, firstLine } from "../../packages/sandboxd/test/start-daemon.ts";
import { packFixture } from "../../scripts/pack-fixture.ts";

/** The three parts of a version, as runnable files. */
interface Version {
  readonly name: string;
  readonly sandboxd: string;
  readonly gateway: string;
  readonly calls: string;
}

const FIXTURES = fileURLToPath(new URL("fixtures", import.meta.url));
const released = existsSync(FIXTURES) ? readdirSync(FIXTURES).filter((name) => name.endsWith(".tar.br")) : [];
const PRESENT = "this checkout";

let folder: string;
let listener: Server;
let port: number;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "sv-"));
  listener = createServer((socket) => socket.end());
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  port = (listener.address() as AddressInfo).port;
  await packFixture(join(folder, "present.tar.br"), { quick: true });
});
afterAll(() => {
  listener.close();
  rmSync(folder, { recursive: true, force: true });
});

const unpacked = new Map<string, Promise<Version>>();

/** Unpacked once, with the native parts of this checkout beside its daemon. */
function versionOf(name: string): Promise<Version> {
  const file = name === PRESENT ? join(folder, "present.tar.br") : join(FIXTURES, name);
  const known = unpacked.get(name) ?? unpack(name, file);
  unpacked.set(name, known);
  return known;
}

async function unpack(name: string, file: string): Promise<Version> {
  const to = mkdtempSync(join(folder, "v-"));
  const entries = extract();
  entries.end(brotliDecompressSync(readFileSync(file)));
  for await (const entry of entries) {
    const parts: Buffer[] = [];
    for await (const part of entry) parts.push(part as Buffer);
    writeFileSync(join(to, entry.header.name), Buffer.concat(parts));
  }
  const natives = dirname(await daemonFile());
  for (const native of Object.values(NATIVE_FILES))
    if (existsSync(join(natives, native))) copyFileSync(join(natives, native), join(to, native));
  return { name, sandboxd: join(to, "sandboxd.cjs"), gateway: join(to, "gateway.mjs"), calls: join(to, "calls.mjs") };
}

function started(child: ChildProcess): ChildProcess {
  onTestFinished(async () => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill();
    await ended;
  });
  return child;
}

async function startDaemon({ sandboxd }: Version) {
  const home = mkdtempSync(join(folder, "d-"));
  const workspace = join(home, "w");
  mkdirSync(workspace);
  const target = { sandboxId: "s", generation: 1, token: "t", address: { path: join(home, "s") } };
  const { sandboxId, generation, token, address } = target;
  const child = started(
    spawn(process.execPath, [sandboxd, "--config-fd", "3"], {
      env: { PATH: "/usr/local/bin:/usr/bin:/bin", TMPDIR: home },
      stdio: ["ignore", "ignore", "inherit", "pipe", "pipe"],
    }),
  );
  const config = { sandboxId, generation, token, listen: address, ready: { fd: 4 }, defaultCwd: workspace };
  (child.stdio[3] as Writable).end(JSON.stringify({ ...config, environment: { HOME: home } }));
  expect(JSON.parse(await firstLine(child.stdio[4] as Readable))).toMatchObject({ ready: true });
  return { target, workspace };
}

async function startGateway({ gateway }: Version, daemon: object): Promise<{ url: string; key: string }> {
  const home = mkdtempSync(join(folder, "h-"));
  const child = started(
    spawn(process.execPath, [gateway, JSON.stringify({ home, daemon })], { stdio: ["pipe", "pipe", "inherit"] }),
  );
  return JSON.parse(await firstLine(child.stdout as Readable)) as { url: string; key: string };
}

/** By the name of each call, `null` or the error. */
async function runCalls({ calls }: Version, settings: object): Promise<Readonly<Record<string, string | null>>> {
  const child = started(
    spawn(process.execPath, [calls, JSON.stringify({ ...settings, port })], { stdio: ["ignore", "pipe", "inherit"] }),
  );
  return JSON.parse(await firstLine(child.stdout as Readable)) as Readonly<Record<string, string | null>>;
}

/** Calls that no released gateway knows, and what it answers to them. */
const SINCE_RELEASED = {
  resetHome: "route_not_found",
  pool: "route_not_found",
  "timeline.read": "route_not_found",
  "timeline.follow": "route_not_found",
  "timeline.export": "route_not_found",
  "timeline.usage": "route_not_found",
  "checkpoints.list": "route_not_found",
  "checkpoints.take": "route_not_found",
  "checkpoints.diff": "route_not_found",
  "checkpoints.find": "route_not_found",
  "checkpoints.verify": "route_not_found",
  "checkpoints.export": "route_not_found",
  "checkpoints.seed": "route_not_found",
  "checkpoints.restore": "route_not_found",
  "checkpoints.undo": "route_not_found",
  "checkpoints.redo": "route_not_found",
  "checkpoints.remove": "route_not_found",
};
/** What this client and this gateway answer: the thread has one state only. */
const NOTHING_TO_UNDO = { "checkpoints.undo": "nothing_to_undo", "checkpoints.redo": "nothing_to_undo" };

async function together(versions: { client: string; gateway: string; daemon: string }): Promise<void> {
  const [client, gateway, daemon] = await Promise.all(
    [versions.client, versions.gateway, versions.daemon].map((name) => versionOf(name)),
  );
  if (client === undefined || gateway === undefined || daemon === undefined) throw new Error("a version is missing");
  const { target, workspace } = await startDaemon(daemon);
  const outcomes = await runCalls(client, { ...(await startGateway(gateway, target)), folder: workspace });
  const failed = Object.entries(outcomes).filter(([, outcome]) => outcome !== null);
  // No sandbox has that id, which all versions report in the same way.
  const isKnown = versions.gateway === PRESENT;
  const refused = versions.client !== PRESENT ? {} : isKnown ? NOTHING_TO_UNDO : SINCE_RELEASED;
  expect(Object.fromEntries(failed)).toEqual({ destroySandbox: "sandbox_not_found", ...refused });
  expect(Object.keys(outcomes).length).toBeGreaterThanOrEqual(50);
}

describe.each([PRESENT, ...released])("%s", (old) => {
  test("its client asks this gateway", () => together({ client: old, gateway: PRESENT, daemon: PRESENT }));
  if (old === PRESENT) return;
  test("its gateway is asked by this client", () => together({ client: PRESENT, gateway: old, daemon: old }));
  test("its fleet holds this daemon", () => together({ client: old, gateway: old, daemon: PRESENT }));
  test("its daemon is held by this fleet", () => together({ client: PRESENT, gateway: PRESENT, daemon: old }));
});
