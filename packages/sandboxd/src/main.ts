/**
 * sandboxd: the daemon inside a sandbox.
 *
 *   read the configuration ─▶ wait for the network policy ─▶ listen ─▶ announce ─▶ serve ─▶ end: a signal, or no renewal
 *
 * Its title replaces name and arguments, which `pkill node` and `pkill -f node` match. The daemon sets its title first.
 * For the moment before, its starter runs Node under another name: through a link called `sandboxd`, with no `node` in
 * the path of this file.
 */

import { chmodSync, closeSync, readdirSync, rmSync, writeSync } from "node:fs";
import { stat } from "node:fs/promises";
import type { Server } from "node:http";
import { type AddressInfo, connect, type Server as NetServer } from "node:net";
import { dirname } from "node:path";
import { DAEMON_EXIT, type DaemonListen, DEFAULT_CWD, PROTOCOL_VERSION, type ReadyLine } from "@sandlot/contract";
import { NotIsolated, waitForPolicy } from "./canary.ts";
import { bootTicks } from "./clock.ts";
import { ConfigProblem, type HeldConfig, readStartup } from "./config.ts";
import { useScoreDescriptor } from "./exec/as-command.ts";
import { ExecTable } from "./exec/exec-table.ts";
import { useTagDescriptor } from "./exec/process-tag.ts";
import { useWorkspaceRoot } from "./files/unlisted.ts";
import { forward } from "./forward.ts";
import { closeInherited } from "./inherited-descriptors.ts";
import { ActivityMonitor } from "./introspection/activity.ts";
import { watchForOrphanhood } from "./orphan-watch.ts";
import { keyedListener } from "./preshared-key.ts";
import { SessionTable } from "./sessions/session-table.ts";
import { SupervisorMemory } from "./supervision/memory.ts";
import { TerminalTable } from "./terminals/terminal-table.ts";
import { writeTrustFiles } from "./trust-files.ts";
import { warmUp } from "./warm-up.ts";
import { CredentialCheck } from "./wire/credentials.ts";
import { daemonServer } from "./wire/server.ts";

process.title = "sandboxd";
main().catch((error: unknown) => {
  const known = error instanceof ConfigProblem || error instanceof NotIsolated;
  process.stderr.write(`sandboxd: ${known ? error.message : ((error as Error).stack ?? String(error))}\n`);
  process.exit(exitCode(error));
});

function exitCode(error: unknown): number {
  if (error instanceof NotIsolated) return DAEMON_EXIT.notIsolated;
  return error instanceof ConfigProblem ? DAEMON_EXIT.invalidConfig : DAEMON_EXIT.failed;
}

async function main(): Promise<void> {
  const { config, supervisorFd, tagFd, scoreFd, restarted } = readStartup(process.argv.slice(2));
  const given = [config.listen, config.ready, config.aioListen].flatMap((where) =>
    where && "fd" in where ? [where.fd] : [],
  );
  closeInherited([...given, ...[supervisorFd, tagFd, scoreFd].filter((fd) => fd !== null)]);
  if (tagFd !== null) useTagDescriptor(tagFd);
  if (scoreFd !== null) useScoreDescriptor(scoreFd);
  // First: nothing else of this sandbox may run, or connect, before its network policy has an effect.
  const canary = config.canary === undefined ? null : await waitForPolicy(config.canary);
  const { environment = {}, ...settings } = config;
  useWorkspaceRoot(dirname(config.defaultCwd ?? DEFAULT_CWD));
  const temporaryDirectory = process.env.TMPDIR ?? "/tmp";
  if (restarted) removeRemains(temporaryDirectory);
  const execSettings = { ...settings, environment, temporaryDirectory };
  const execs = new ExecTable(execSettings);
  const sessions = new SessionTable(execs);
  const terminals = new TerminalTable(execs);
  const activity = new ActivityMonitor(execs, terminals);
  const memory = new SupervisorMemory(supervisorFd);
  const credentials = new CredentialCheck(config.sandboxId, config, (secret) => memory.rebound(secret));
  const run = `${process.pid}.${bootTicks()}`;
  const server = daemonServer(credentials, { execs, sessions, terminals, activity, memory, run, canary });
  // Makes the threads for file work now: later, in a sandbox full of processes, this could fail and abort the daemon.
  const threads = stat("/");
  if (config.trust !== undefined) await writeTrustFiles(config.trust);
  if (config.forward !== undefined) await forward(config.forward);
  const listener = await listenerOf(server.http, config.listen);
  await listen(listener, config.listen);
  const aio = config.aioListen === undefined ? null : server.keylessAio();
  if (aio !== null && config.aioListen !== undefined) await listen(aio, config.aioListen);
  await threads;
  announce(config, listener, aio, restarted);
  execs.prepare();
  void warmUp(execSettings, server.isInUse);

  const end = async (): Promise<void> => {
    for (const where of [config.listen, config.aioListen])
      if (where !== undefined && "path" in where) rmSync(where.path, { force: true });
    await execs.close();
    process.exit(0);
  };
  handleSignals(supervisorFd === null ? end : null);
  // A fault in one call must not end all commands.
  process.on("uncaughtException", (error) => {
    process.stderr.write(`sandboxd: ${error.stack ?? error.message}\n`);
  });
  if (config.orphanTimeoutMs !== undefined && config.orphanTimeoutMs > 0) {
    watchForOrphanhood({
      timeoutMs: config.orphanTimeoutMs,
      lastContactAt: server.lastContactAt,
      isHeld: () => server.holdCount() > 0,
      isBusy: () => execs.runningCount() > 0,
      end: () => void end(),
    });
  }
}

/**
 * Below a supervisor the daemon ends only by itself or by KILL: there TERM comes from a command that signals all
 * processes (`kill -- -1`). A fleet ends the sandbox through its first process.
 */
function handleSignals(end: (() => Promise<void>) | null): void {
  for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => void end?.());
  // The daemon must outlive its starter's terminal and pipe; and Node would open a debugger on USR1.
  for (const name of ["SIGHUP", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM"] as const)
    process.on(name, () => {});
}

/** Removes files that the previous run left. Its commands are gone, so no process uses them. */
function removeRemains(directory: string): void {
  for (const name of readdirSync(directory)) {
    if (name.startsWith(".sandboxd-")) rmSync(`${directory}/${name}`, { recursive: true, force: true });
  }
}

/** What accepts connections: the HTTP server itself, or TLS before it. */
async function listenerOf(http: Server, where: DaemonListen): Promise<NetServer> {
  return "psk" in where && where.psk !== undefined ? keyedListener(http, where.psk) : http;
}

async function listen(server: NetServer, where: DaemonListen): Promise<void> {
  try {
    await listenOnce(server, where);
  } catch (error) {
    const isLeftover = (error as NodeJS.ErrnoException).code === "EADDRINUSE" && "path" in where;
    // A killed daemon leaves its socket behind; a socket that responds must not be replaced.
    if (!isLeftover || (await answers(where.path))) throw error;
    rmSync(where.path);
    await listenOnce(server, where);
  }
  if ("path" in where) chmodSync(where.path, 0o600);
}

function listenOnce(server: NetServer, where: DaemonListen): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    const { psk: _, ...at } = { psk: undefined, ...where };
    server.listen({ ...at, exclusive: true }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

/** Writes the ready line as soon as the daemon listens. */
function announce(
  { ready, sandboxId, generation }: HeldConfig,
  server: NetServer,
  aio: NetServer | null,
  restarted: boolean,
): void {
  // A descriptor to announce on exists for the first run only.
  if (ready === undefined || (restarted && "fd" in ready)) return;
  const told = aio === null ? {} : { aioPort: portOf(aio) };
  const who = { pid: process.pid, sandboxId, generation };
  const line: ReadyLine = { ready: true, ...who, port: portOf(server), ...told, protocol: PROTOCOL_VERSION };
  const text = `${JSON.stringify(line)}\n`;
  if ("fd" in ready) {
    writeSync(ready.fd, text);
    closeSync(ready.fd);
    return;
  }
  const socket = connect(ready.path);
  // The fleet may have stopped listening; then the line is not needed.
  socket.once("error", () => {});
  socket.end(text);
}

function portOf(server: NetServer): number | null {
  const address = server.address() as AddressInfo | string | null;
  return typeof address === "object" && address !== null ? (address.port ?? null) : null;
}
