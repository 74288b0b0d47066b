/**
 * What a pre-shared key costs between a fleet and a daemon: the same calls over a plain port and over a port with a key, in
 * one run, with a real daemon each. Prints medians and ratios; it has no limits.
 *
 *   node --conditions=sandlot-source bench/keyed-transport.ts
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConnectionPool } from "../packages/fleet/src/sandboxd/connection-pool.ts";
import { DaemonAttachment, type DaemonTarget, FleetKeys, renewDaemon } from "../packages/fleet/src/sandboxd/index.ts";
import { systemWorld } from "../packages/fleet/src/world/system-world.ts";
import { sandboxdFiles } from "../packages/sandboxd/src/index.ts";

const ROUNDS = 300;
const BYTES = 256 * 1024 * 1024;
const OWNER = { sandboxId: "bench", blueprintHash: "bench" };
const KEYS = FleetKeys.parse(`k1:${Buffer.alloc(32, 1).toString("base64")}`, "keys");
const world = systemWorld();
const directory = mkdtempSync(join(tmpdir(), "sandlot-keyed-"));

interface Figures {
  readonly connectMs: number;
  readonly exchangeMs: number;
  readonly execMs: number;
  readonly uploadMiBs: number;
  readonly downloadMiBs: number;
}

async function measure(isKeyed: boolean): Promise<Figures> {
  const listen = { host: "127.0.0.1", port: 0, ...(isKeyed && { psk: KEYS.issue("daemon", OWNER) }) };
  const config = {
    ...{ sandboxId: "bench", generation: 1, token: "t", listen },
    ready: { fd: 4 },
    defaultCwd: directory,
  };
  const child = spawn(process.execPath, [sandboxdFiles().bundle, "--config-fd", "3"], {
    stdio: ["ignore", "ignore", "inherit", "pipe", "pipe"],
  });
  try {
    (child.stdio[3] as NodeJS.WritableStream).end(JSON.stringify(config));
    const [line] = await once(child.stdio[4] as NodeJS.ReadableStream, "data");
    const { port } = JSON.parse(String(line)) as { port: number };
    const address = { host: "127.0.0.1", port, ...(isKeyed && { keys: KEYS.accepted("daemon", OWNER) }) };
    return await figuresOf({ address, sandboxId: "bench", generation: 1, token: "t" });
  } finally {
    child.kill("SIGKILL");
  }
}

async function figuresOf(target: DaemonTarget): Promise<Figures> {
  const attachment = await DaemonAttachment.open(target, world, undefined, new ConnectionPool());
  const { sandbox } = attachment;
  for (let round = 0; round < 20; round++) await Promise.all([renewDaemon(target), sandbox.exec("true")]);
  const connectMs = await median(() => renewDaemon(target));
  const exchangeMs = await median(() => sandbox.sessions.list());
  const execMs = await median(() => sandbox.exec("true"));
  const path = join(directory, "content");
  const piece = Buffer.alloc(1024 * 1024, "x");
  const uploadMs = await timed(() => sandbox.files.upload(path, repeated(piece, BYTES / piece.length)));
  const downloadMs = await timed(async () => {
    let size = 0;
    for await (const chunk of await sandbox.files.download(path)) size += chunk.length;
    if (size !== BYTES) throw new Error(`${size} bytes came back`);
  });
  await attachment.close();
  const speed = (ms: number) => BYTES / 1024 / 1024 / (ms / 1_000);
  return { connectMs, exchangeMs, execMs, uploadMiBs: speed(uploadMs), downloadMiBs: speed(downloadMs) };
}

async function median(work: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push(await timed(work));
  return times.sort((a, b) => a - b)[ROUNDS >> 1] ?? 0;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = world.monotonicMs();
  await work();
  return world.monotonicMs() - startedAt;
}

async function* repeated(piece: Buffer, count: number): AsyncGenerator<Buffer> {
  for (let index = 0; index < count; index++) yield piece;
}

try {
  const [plain, keyed] = [await measure(false), await measure(true)];
  for (const [name, before] of Object.entries(plain)) {
    const after = keyed[name as keyof Figures];
    process.stdout.write(
      `${name.padEnd(14)} plain ${before.toFixed(2)}  key ${after.toFixed(2)}  ratio ${(after / before).toFixed(2)}\n`,
    );
  }
} finally {
  rmSync(directory, { recursive: true, force: true });
}
