/**
 * A real Redis server, or Valkey, in a directory and on ports of its own. It ends with `dispose`, and with the test
 * process at the latest.
 *
 * Its clock can be moved (`skipTime`): `moved-clock.c` is preloaded.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createClient } from "@redis/client";
import type { RedisSettings } from "../../../src/store/redis/settings.ts";
import { SmallDisk } from "../../support/small-disk.ts";

const HOST = "127.0.0.1";
/** Starting takes a tenth of a second on an idle machine. */
const START_MS = 30_000;

type Program = "redis-server" | "valkey-server";

/** `SANDLOT_TEST_REDIS=valkey-server` runs every test of Redis on Valkey, which Debian has from version 13 on. */
const PROGRAM: Program = process.env.SANDLOT_TEST_REDIS === "valkey-server" ? "valkey-server" : "redis-server";

/** Why these tests cannot run here; `null` if they can. With `CI=true` they must. */
export function reasonToSkip(program: Program = PROGRAM): string | null {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const missing = [program, "gcc"].find((name) => !folders.some((folder) => existsSync(join(folder, name))));
  if (missing === undefined) return null;
  if (process.env.CI === "true") throw new Error(`${missing} is not installed; run npm run test:engines as root`);
  return `${missing} is not installed`;
}

/** What every server of the tests has, unless a test says otherwise. */
const SAFE: Readonly<Record<string, string>> = {
  save: "",
  appendonly: "yes",
  appendfsync: "always",
  "maxmemory-policy": "noeviction",
  daemonize: "no",
  "repl-diskless-sync-delay": "0",
  // A replica that lost its master asks again soon.
  "repl-timeout": "5",
};

export interface RedisProcessOptions {
  readonly config?: Readonly<Record<string, string>>;
  /** Lines that a directive repeats, such as users. */
  readonly lines?: readonly string[];
  readonly program?: Program;
  /** Its data are on a disk of their own of this size. */
  readonly diskBytes?: number;
  /** A Sentinel reads another configuration. */
  readonly isSentinel?: boolean;
}

export class RedisProcess {
  readonly directory = mkdtempSync(join(tmpdir(), "sl-redis-"));
  readonly port: number;
  readonly #options: RedisProcessOptions;
  readonly #disk: SmallDisk | null;
  #child: ChildProcess | null = null;
  #aheadMs = 0;
  /** 0: the clock goes on. */
  #stoppedAtMs = 0;

  static async start(options: RedisProcessOptions = {}): Promise<RedisProcess> {
    const redis = new RedisProcess(await freePort(), options);
    await redis.start();
    return redis;
  }

  private constructor(port: number, options: RedisProcessOptions) {
    this.port = port;
    this.#options = options;
    this.#writeClock();
    const { config = {}, lines = [], isSentinel = false } = options;
    const data = join(this.directory, "data");
    mkdirSync(data);
    this.#disk = options.diskBytes === undefined ? null : new SmallDisk(data, { sizeBytes: options.diskBytes });
    const settings = { ...(isSentinel ? {} : SAFE), port: String(port), bind: HOST, dir: data, ...config };
    const written = Object.entries(settings).map(([name, value]) => `${name} ${value === "" ? '""' : value}`);
    writeFileSync(this.file("redis.conf"), `${[...written, ...lines].join("\n")}\n`);
  }

  file(name: string): string {
    return join(this.directory, name);
  }

  /** Fails for a server that was started without one. */
  get disk(): SmallDisk {
    if (this.#disk === null) throw new Error("the server has no disk of its own");
    return this.#disk;
  }

  /** `setpriv` becomes the server, with the same pid. */
  get pid(): number {
    if (this.#child?.pid === undefined) throw new Error("the server is not running");
    return this.#child.pid;
  }

  get isRunning(): boolean {
    return this.#child?.pid !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Starts it on the same data and port. */
  async start(): Promise<void> {
    const { program = PROGRAM, isSentinel = false } = this.#options;
    const args = [this.file("redis.conf"), ...(isSentinel ? ["--sentinel"] : [])];
    const env = { PATH: process.env.PATH, LD_PRELOAD: movedClock(), MOVED_CLOCK: this.file("clock") };
    const child = spawn("setpriv", ["--pdeathsig", "KILL", program, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env,
    });
    this.#child = child;
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (data: Buffer) => {
        output = `${output}${data.toString()}`.slice(-4_000);
      });
    const begunAt = Date.now();
    while (!/Ready to accept connections|Sentinel ID is|monitor master/i.test(output)) {
      if (child.exitCode !== null || Date.now() - begunAt > START_MS)
        throw new Error(`${program} did not start: ${output}`);
      await sleep(5);
    }
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    process.kill(this.pid, name);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  /** Moves the clock of the server: forward, or back where `ms` is negative. */
  skipTime(ms: number): void {
    this.#aheadMs += ms;
    this.#writeClock();
  }

  /** Stops the clock of the server at this moment. */
  stopTime(ms: number): void {
    if (ms === this.#stoppedAtMs) return;
    this.#stoppedAtMs = ms;
    this.#writeClock();
  }

  /** In place: the server has mapped the file. */
  #writeClock(): void {
    const micros = Buffer.alloc(16);
    micros.writeBigInt64LE(BigInt(this.#aheadMs) * 1_000n, 0);
    micros.writeBigInt64LE(BigInt(this.#stoppedAtMs) * 1_000n, 8);
    writeFileSync(this.file("clock"), micros, { flag: existsSync(this.file("clock")) ? "r+" : "w" });
  }

  /** Runs one command, as an operator would. */
  async command(...args: string[]): Promise<unknown> {
    const client = createClient({ socket: { host: HOST, port: this.port, reconnectStrategy: false } });
    client.on("error", () => undefined);
    await client.connect();
    try {
      return await client.sendCommand(args);
    } finally {
      client.destroy();
    }
  }

  /** The files that hold what was written since the last rewrite. */
  appendOnlyFiles(): readonly string[] {
    const folder = join(this.directory, "data", "appendonlydir");
    return readdirSync(folder)
      .filter((name) => name.includes(".incr."))
      .map((name) => join(folder, name));
  }

  settings(more: Partial<RedisSettings> = {}): RedisSettings {
    return settingsFor({ host: HOST, port: this.port }, more);
  }

  async dispose(): Promise<void> {
    await this.kill();
    this.#disk?.unmount();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

let library: string | undefined;

/** `moved-clock.c`, compiled once per test file. */
function movedClock(): string {
  if (library !== undefined) return library;
  const folder = mkdtempSync(join(tmpdir(), "sl-moved-clock-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  library = join(folder, "moved-clock.so");
  const source = fileURLToPath(new URL("./moved-clock.c", import.meta.url));
  execFileSync("gcc", ["-shared", "-fPIC", "-O1", "-o", library, source]);
  return library;
}

export function settingsFor(
  endpoint: { readonly host: string; readonly port: number },
  more: Partial<RedisSettings> = {},
): RedisSettings {
  return {
    type: "redis",
    topology: { kind: "standalone", endpoint },
    database: 0,
    user: null,
    passwordFile: null,
    tls: null,
    prefix: "sandlot",
    replicasMin: 0,
    timeoutMs: 5_000,
    ...more,
  };
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, HOST);
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
