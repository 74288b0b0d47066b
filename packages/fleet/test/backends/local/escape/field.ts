/**
 * The setting of the escapes: two sandboxes of different threads, made by the real backend, on a host with valuable
 * targets. A probe is a piece of Perl that prints one line, `ok` or the name of an errno; it runs unchanged on the
 * host, without protection, and inside.
 */

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Sandbox } from "@sandlot/contract";
import { expect } from "vitest";
import type { Blueprint } from "../../../../src/backend/blueprint.ts";
import { threadKeyOf } from "../../../../src/backend/labels.ts";
import { BackendStage } from "../../../../src/testing/backend-suite/stage.ts";
import { blueprint, initOf, type LocalHarness, openHarness } from "../local-harness.ts";

/** `answer` prints `ok` or the errno's name, `some` prints `ok` or `none`. */
const PRELUDE = String.raw`
  use strict; use warnings; no warnings "once"; use Errno (); use Fcntl qw(:DEFAULT :mode); use Socket; use POSIX ();
  my %names = map { (eval "Errno::$_()") => $_ } grep { !/^E(WOULDBLOCK|NOTSUP|DEADLOCK)$/ } keys %!;
  sub answer { my ($ok) = @_; my $errno = $! + 0; print $ok ? "ok" : $names{$errno} // $errno, "\n"; exit 0 }
  sub some { print @_ ? "ok" : "none", "\n"; exit 0 }
`;

const run = promisify(execFile);

export async function outside(perl: string, prefix: readonly string[] = []): Promise<string> {
  const [file = "perl", ...args] = [...prefix, "perl", "-e", PRELUDE + perl];
  const { stdout } = await run(file, args, { cwd: "/", encoding: "utf8" });
  return stdout.trim();
}

export async function inside(sandbox: Sandbox, perl: string): Promise<string> {
  const { exitCode, stdout, stderr } = await sandbox.exec(["perl", "-e", PRELUDE + perl], { cwd: "/" });
  if (exitCode !== 0) throw new Error(`The probe could not be run: ${exitCode} ${stderr}`);
  return stdout.trim();
}

export class Field {
  readonly harness: LocalHarness;
  readonly stage: BackendStage;
  /** A directory of the host: `secret`, and `read-only/file`, which is mounted at `/mnt/read-only`. */
  readonly directory: string;
  readonly #servers: Server[] = [];
  readonly #children: ChildProcess[] = [];

  private constructor(harness: LocalHarness, directory: string) {
    this.harness = harness;
    this.directory = directory;
    this.stage = new BackendStage(harness, this.blueprint(), expect);
  }

  static async open(): Promise<Field> {
    const directory = mkdtempSync(join(tmpdir(), "sl-escape-"));
    chmodSync(directory, 0o755);
    writeFileSync(join(directory, "secret"), "of the host", { mode: 0o644 });
    mkdirSync(join(directory, "read-only"));
    chmodSync(join(directory, "read-only"), 0o777);
    writeFileSync(join(directory, "read-only/file"), "unchanged");
    chmodSync(join(directory, "read-only/file"), 0o666);
    return new Field(await openHarness(), directory);
  }

  blueprint(limits: Blueprint["limits"] = {}): Blueprint {
    const hostPath = join(this.directory, "read-only");
    return { ...blueprint, limits, mounts: [{ hostPath, sandboxPath: "/mnt/read-only", readOnly: true }] };
  }

  /** A new thread's sandbox, with the host's pid of its init and the host's path of its workspace. */
  async sandbox(limits: Blueprint["limits"] = {}) {
    const key = this.stage.newKey();
    const made = await this.stage.make(key, { blueprint: this.blueprint(limits) });
    const { sandbox } = await this.stage.attach(made.target);
    const { harness } = this;
    const userData = join(harness.home, harness.fleetId, "homes", threadKeyOf(key.user, key.thread), "user-data");
    return { sandbox, made, init: initOf(made.target.ref), userData };
  }

  /** The sockets of all daemons, on the host. */
  sockets(): readonly string[] {
    const directory = join(this.harness.home, this.harness.fleetId, "s");
    return existsSync(directory) ? readdirSync(directory).map((name) => join(directory, name)) : [];
  }

  /** Listens on a port of the loopback, or on an abstract name. */
  async listen(abstractName?: string): Promise<number> {
    const server = createServer((socket) => socket.end());
    this.#servers.push(server);
    await new Promise<void>((resolve) => {
      if (abstractName === undefined) server.listen(0, "127.0.0.1", resolve);
      else server.listen(`\0${abstractName}`, resolve);
    });
    const address = server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  /** A process of the host, with a name to look for and a secret in its environment. */
  victim(name: string): number {
    const child = spawn("/bin/sleep", ["300"], { argv0: name, env: { SECRET: name }, stdio: "ignore" });
    this.#children.push(child);
    return child.pid ?? 0;
  }

  rootDevice(): { major: number; minor: number } {
    const { dev } = statSync("/");
    return { major: (dev >> 8) & 0xfff, minor: (dev & 0xff) | ((dev >> 12) & 0xfff00) };
  }

  async close(): Promise<void> {
    for (const server of this.#servers) await new Promise((resolve) => server.close(resolve));
    for (const child of this.#children) child.kill("SIGKILL");
    await this.stage.clear();
    await this.harness.dispose();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
