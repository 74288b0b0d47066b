/**
 * A PostgreSQL server of the tests: the system's own programs, an unprivileged account, a private directory, a unix socket
 * and a loopback port of its own. Everything is gone after `dispose`.
 *
 * Debian's package keeps the programs outside the PATH, one directory per version. The newest is used.
 */

import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import {
  appendFileSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
} from "node:fs";
import { rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import pg from "pg";
import type { PostgresSettings } from "../../../src/store/postgres/settings.ts";
import { SmallDisk } from "../../support/small-disk.ts";

const DEBIAN = "/usr/lib/postgresql";
/** A server that does not answer by then is broken. */
const START_MS = 60_000;
/** A dump. */
const OUTPUT_MAX_BYTES = 100_000_000;

export interface ServerOptions {
  /** Lines of postgresql.conf. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Lines of pg_hba.conf, instead of trusting everyone. */
  readonly hba?: readonly string[];
  /** A copy of this server that follows it. */
  readonly standbyOf?: PostgresServer;
  /** Its data, or its write-ahead log alone, are on a disk of their own. */
  readonly disk?: { readonly of: "data" | "log"; readonly sizeBytes: number };
}

/** Why there is no server; `null` where there is. With `CI=true` there must be one. */
export function missingPostgres(): string | null {
  if (programs() !== null) return null;
  const reason = "no PostgreSQL server; to install: sudo apt-get install -y postgresql";
  if (process.env.CI === "true") throw new Error(reason);
  return reason;
}

export async function startPostgres(options: ServerOptions = {}): Promise<PostgresServer> {
  const server = new PostgresServer(await freePort());
  try {
    await server.initialize(options);
    await server.start();
    if (options.standbyOf === undefined) {
      await server.admin("CREATE ROLE app LOGIN PASSWORD 'right'");
      await server.admin("CREATE DATABASE app OWNER app");
    }
    return server;
  } catch (error) {
    await server.dispose();
    throw error;
  }
}

export class PostgresServer implements AsyncDisposable {
  readonly port: number;
  /** Also the directory of the socket. */
  readonly directory: string;
  readonly data: string;
  #process: ChildProcess | null = null;
  #disk: SmallDisk | null = null;

  constructor(port: number) {
    this.port = port;
    this.directory = mkdtempSync(join(tmpdir(), "sl-pg-"));
    this.data = join(this.directory, "data");
    const { uid, gid } = account();
    if (process.getuid?.() === 0) chownSync(this.directory, uid, gid);
  }

  settings(over: Partial<PostgresSettings> = {}): PostgresSettings {
    return {
      type: "postgres",
      host: this.directory,
      port: this.port,
      database: "app",
      user: "app",
      passwordFile: null,
      schema: "sandlot",
      tls: null,
      poolMax: 8,
      timeoutMs: 5_000,
      ...over,
    };
  }

  /** Fails for a server that was started without one. */
  get disk(): SmallDisk {
    if (this.#disk === null) throw new Error("the server has no disk of its own");
    return this.#disk;
  }

  async initialize({ settings = {}, hba, standbyOf, disk }: ServerOptions): Promise<void> {
    const log = join(this.directory, "wal");
    if (disk !== undefined) {
      const path = disk.of === "data" ? this.data : log;
      mkdirSync(path);
      this.#disk = new SmallDisk(path, { sizeBytes: disk.sizeBytes, ...account() });
    }
    if (standbyOf === undefined) {
      const args = ["-D", this.data, "-U", "admin", "-A", "trust", "-E", "UTF8", "--no-locale"];
      // In megabytes; the default is 16.
      if (disk !== undefined) args.push("--wal-segsize=1");
      if (disk?.of === "log") args.push(`--waldir=${log}`);
      await this.run("initdb", ...args, "--no-sync");
    } else {
      const { directory, port } = standbyOf;
      await this.run(
        "pg_basebackup",
        "-D",
        this.data,
        "-h",
        directory,
        "-p",
        `${port}`,
        "-U",
        "admin",
        "-R",
        "-c",
        "fast",
      );
    }
    if (hba !== undefined) this.write("pg_hba.conf", ["local all admin trust", ...hba].join("\n"));
    const own = {
      port: `${this.port}`,
      unix_socket_directories: `'${this.directory}'`,
      listen_addresses: "'127.0.0.1'",
    };
    this.configure({ ...own, shared_buffers: "32MB", max_connections: "60", ...settings });
  }

  /** Adds lines to the configuration, for the next start or reload. */
  configure(settings: Readonly<Record<string, string>>): void {
    const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}\n`);
    appendFileSync(join(this.data, "postgresql.conf"), lines.join(""));
  }

  write(name: string, text: string): void {
    const path = join(this.data, name);
    rmSync(path, { force: true });
    appendFileSync(path, `${text}\n`, { mode: 0o600 });
    const { uid, gid } = account();
    if (process.getuid?.() === 0) chownSync(path, uid, gid);
  }

  async start(): Promise<void> {
    const log = join(this.directory, "log");
    const command = `exec "$0" -D "$1" >> "$2" 2>&1`;
    this.#process = spawn("/bin/sh", ["-c", command, program("postgres"), this.data, log], {
      ...account(),
      cwd: this.directory,
      stdio: "ignore",
    });
    const deadline = Date.now() + START_MS;
    for (;;) {
      try {
        await this.admin("SELECT 1");
        return;
      } catch (error) {
        if (this.#process.exitCode !== null || Date.now() > deadline)
          throw new Error(`the server did not start: ${readFileSync(log, "utf8").slice(-2_000)}`, { cause: error });
        await sleep(50);
      }
    }
  }

  /** Ends the server: `immediate` without writing anything more, `kill` with all its processes, by SIGKILL. */
  async stop(how: "fast" | "immediate" | "kill" = "fast"): Promise<void> {
    const child = this.#process;
    const pids = this.pids();
    this.#process = null;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    if (how === "kill") for (const pid of pids) kill(pid, "SIGKILL");
    else kill(child.pid, how === "fast" ? "SIGINT" : "SIGQUIT");
    await ended;
    // Processes that were killed leave shared memory, which the next start removes once none of them runs.
    await sleep(how === "kill" ? 100 : 0);
  }

  async restart(how: "fast" | "immediate" | "kill" = "fast"): Promise<void> {
    await this.stop(how);
    await this.start();
  }

  get isRunning(): boolean {
    return this.#process !== null && this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Stops or continues every process of the server. */
  signal(signal: "SIGSTOP" | "SIGCONT"): void {
    for (const pid of this.pids()) kill(pid, signal);
  }

  reload(): Promise<unknown> {
    return this.admin("SELECT pg_reload_conf()");
  }

  async promote(): Promise<void> {
    await this.admin("SELECT pg_promote()");
  }

  /** The first process and its children; none where the server does not run. */
  pids(): readonly number[] {
    const first = this.#process?.pid;
    if (first === undefined) return [];
    try {
      const children = readFileSync(`/proc/${first}/task/${first}/children`, "utf8").trim().split(/\s+/);
      return [first, ...children.filter(Boolean).map(Number)];
    } catch {
      return [first]; // It has ended.
    }
  }

  /** One statement as the administrator, on a connection of its own. */
  async admin(sql: string, database = "postgres"): Promise<readonly Record<string, unknown>[]> {
    const client = new pg.Client({ host: this.directory, port: this.port, user: "admin", database, password: "" });
    await client.connect();
    try {
      const result = await client.query(sql);
      return Array.isArray(result) ? [] : result.rows;
    } finally {
      await client.end();
    }
  }

  /** A test may serve the links of the server meanwhile, so this thread stays free. */
  async run(name: string, ...args: readonly string[]): Promise<string> {
    const { uid, gid } = account();
    const options = { uid, gid, cwd: this.directory, maxBuffer: OUTPUT_MAX_BYTES };
    return (await promisify(execFile)(program(name), [...args], options)).stdout;
  }

  /** Runs the text of a dump. */
  restore(dump: string, database: string): void {
    const args = ["-h", this.directory, "-p", `${this.port}`, "-U", "admin", "-q", "-v", "ON_ERROR_STOP=1", database];
    execFileSync(program("psql"), args, { ...account(), cwd: this.directory, input: dump, stdio: "pipe" });
  }

  async dispose(): Promise<void> {
    this.signal("SIGCONT");
    await this.stop("immediate");
    this.#disk?.unmount();
    await rm(this.directory, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

function programs(): string | null {
  if (!existsSync(DEBIAN)) return null;
  const versions = readdirSync(DEBIAN).filter((name) => existsSync(join(DEBIAN, name, "bin", "initdb")));
  const newest = versions.sort((one, other) => Number(one) - Number(other)).at(-1);
  return newest === undefined ? null : join(DEBIAN, newest, "bin");
}

function program(name: string): string {
  const directory = programs();
  if (directory === null) throw new Error("no PostgreSQL server");
  return join(directory, name);
}

/** The server refuses to run as root, and asks for an account with a name. */
function account(): { readonly uid: number; readonly gid: number } {
  const own = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  if (own.uid !== 0) return own;
  const lines = readFileSync("/etc/passwd", "utf8").split("\n");
  const line = lines.find((one) => one.startsWith("postgres:")) ?? lines.find((one) => one.startsWith("nobody:"));
  const [, , uid, gid] = line?.split(":") ?? [];
  return { uid: Number(uid), gid: Number(gid) };
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(address !== null && typeof address === "object" ? address.port : 0));
    });
  });
}
