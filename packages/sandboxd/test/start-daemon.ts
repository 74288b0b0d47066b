/**
 * Starts the daemon as a backend does: the bundle, run by a Node under another name, configured and announced through
 * descriptors. All its files are in one temporary directory, which goes when the test ends.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import type { DaemonConfig } from "@sandlot/contract";
import { afterAll, onTestFinished } from "vitest";
import { bundle } from "../bundle.mjs";
import { configText, NATIVE_FILES, SUPERVISED_DESCRIPTORS, supervisedCommand } from "../src/index.ts";

export interface StartedDaemon {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly directory: string;
  readonly workspace: string;
  readonly socketPath: string;
  readonly config: DaemonConfig;
  readonly ready: { readonly port: number | null; readonly aioPort?: number | null };
  readonly exited: Promise<number | null>;
}

export interface StartOptions {
  readonly config?: Partial<DaemonConfig>;
  /** Which Node runs it; default the one in `SANDLOT_TEST_DAEMON_NODE`, or the one that runs the test. */
  readonly node?: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** In its own pid namespace, below an init that reaps. */
  readonly ownPidNamespace?: boolean;
  /** In its own pid namespace, below the supervisor, with an inherited listening socket. */
  readonly supervised?: boolean | { readonly shell: string };
  /** Native parts that are missing beside it. */
  readonly lacks?: readonly (keyof typeof NATIVE_FILES)[];
}

/** Why the tests that need a pid namespace cannot run here; `null` when they can. */
export function noNamespaceReason(): string | null {
  const probe = spawnSync("unshare", ["--pid", "--fork", "--mount-proc", "true"], { stdio: "ignore" });
  return probe.status === 0 ? null : "this user may not make a pid namespace with unshare";
}

const NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"];
/** The shell is pid 1: it reaps every orphan. */
const REAPER = ["sh", "-c", '"$@" & wait', "sh"];

let built: Promise<string> | undefined;

afterAll(async () => {
  if (built !== undefined) rmSync(dirname(await built), { recursive: true, force: true });
});

/** The bundle is made once per test file, and goes with it. */
export function daemonFile(): Promise<string> {
  built ??= bundle(join(mkdtempSync(join(tmpdir(), "sd-bundle-")), "sandboxd.cjs")).then(({ outfile }) => outfile);
  return built;
}

/** The bundle with its neighbouring files, except some. */
function fileWithout(file: string, lacking: readonly (keyof typeof NATIVE_FILES)[], directory: string): string {
  if (lacking.length === 0) return file;
  const copy = join(directory, "daemon");
  cpSync(dirname(file), copy, { recursive: true });
  for (const part of lacking) rmSync(join(copy, NATIVE_FILES[part]));
  return join(copy, basename(file));
}

export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "sd-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export async function startDaemon(options: StartOptions = {}): Promise<StartedDaemon> {
  const directory = temporaryDirectory();
  const file = fileWithout(await daemonFile(), options.lacks ?? [], directory);
  const workspace = join(directory, "workspace");
  mkdirSync(workspace);
  const socketPath = join(directory, "s");
  const { supervised } = options;
  const listener = supervised ? await listenAt(socketPath) : null;
  const config: DaemonConfig = {
    sandboxId: "sandbox-1",
    generation: 7,
    token: "the-token",
    listen: listener === null ? { path: socketPath } : { fd: SUPERVISED_DESCRIPTORS.listen },
    ready: { fd: SUPERVISED_DESCRIPTORS.ready },
    defaultCwd: workspace,
    killGraceMs: 300,
    environment: { HOME: directory },
    ...options.config,
  };
  const link = join(directory, "sandboxd");
  symlinkSync(options.node ?? process.env.SANDLOT_TEST_DAEMON_NODE ?? process.execPath, link);
  const supervisor = join(dirname(file), "supervisor.sh");
  const shell = typeof supervised === "object" ? supervised : {};
  const command = supervised
    ? [...NAMESPACE, ...supervisedCommand({ node: link, bundle: file, supervisor, ...shell })]
    : [link, file, "--config-fd", "3"];
  if (options.ownPidNamespace === true) command.unshift(...NAMESPACE, ...REAPER);
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    env: { PATH: "/usr/local/bin:/usr/bin:/bin", TMPDIR: directory, ...options.environment },
    // A supervisor's shell reports killed processes, which its tests cause.
    stdio: ["ignore", "ignore", supervised ? "ignore" : "inherit", "pipe", "pipe", listener?.fd ?? "ignore"],
  });
  // From here on only the daemon accepts.
  listener?.close();
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  onTestFinished(async () => {
    // SIGTERM comes first, so that the daemon ends its children.
    child.kill(options.ownPidNamespace === true || supervised ? "SIGKILL" : "SIGTERM");
    const forced = setTimeout(() => child.kill("SIGKILL"), 3_000);
    await exited;
    clearTimeout(forced);
  });
  (child.stdio[3] as Writable).end(supervised ? configText(config) : JSON.stringify(config));
  const line = await Promise.race([firstLine(child.stdio[4] as Readable), exited.then(() => null)]);
  if (line === null) throw new Error("the daemon ended before it was ready");
  const ready = JSON.parse(line) as StartedDaemon["ready"];
  return { process: child, pid: child.pid ?? 0, directory, workspace, socketPath, config, ready, exited };
}

/** Node removes the path of a socket when it closes it, so the socket is renamed meanwhile. */
async function listenAt(path: string): Promise<{ fd: number; close(): void }> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(`${path}.0`, resolve));
  renameSync(`${path}.0`, path);
  const { fd } = (server as unknown as { _handle: { fd: number } })._handle;
  return { fd, close: () => void server.close() };
}

export async function firstLine(source: Readable): Promise<string> {
  let text = "";
  for await (const chunk of source) {
    text += String(chunk);
    if (text.includes("\n")) break;
  }
  return text.split("\n")[0] ?? "";
}
