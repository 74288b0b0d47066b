/**
 * `sandlot logs`, `stats`, `port` and `aio`: what goes on inside sandboxes. Only `aio` makes one, when it is used.
 */

import { createServer, type Server } from "node:net";
import { AIO_TUNNEL_PORT, type ExecInfo, type ResourceUsage, type Sandbox, SandlotError } from "@sandlot/contract";
import { showDuration, showSize } from "../world/units.ts";
import { onThisMachine } from "./host-trouble.ts";
import { namedThread } from "./named-thread.ts";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { requireThread, type Target, type TargetLease, type TargetOptions, withTarget } from "./target.ts";
import { EXIT_CODES, printJson, type Terminal } from "./terminal.ts";

interface InsideOptions extends TargetOptions {
  readonly thread?: string;
  readonly user?: string;
  readonly json: boolean;
}

export interface LogsCommandOptions extends InsideOptions {
  readonly follow?: boolean;
  readonly list?: boolean;
}

/** What a command printed, as far as it is still held; without an id, the one that was started last. */
export async function logsCommand(
  terminal: Terminal,
  execId: string | undefined,
  options: LogsCommandOptions,
  signal: AbortSignal,
): Promise<number> {
  return withTarget(terminal, options, async (target) => {
    await using lease = await existing(target, options, "sandlot logs", signal);
    const { execs } = lease.sandbox;
    const known = [...(await execs.list())].sort((a, b) => a.startedAt - b.startedAt);
    if (options.list === true || (options.json && execId === undefined))
      return listExecs(terminal, known, options.json);
    const found = execId === undefined ? known.at(-1) : known.find((exec) => exec.execId === execId);
    if (found === undefined) throw new SandlotError("exec_not_found", { execId: execId ?? "(none has run)" });
    await printOutput(terminal, lease.sandbox, found, options.follow === true, signal);
    return EXIT_CODES.ok;
  });
}

function listExecs(terminal: Terminal, execs: readonly ExecInfo[], json: boolean): number {
  if (json) printJson(terminal, { execs });
  else {
    const rows = execs.map(({ execId, status, exitCode, startedAt, stdoutBytes, stderrBytes, command }) => [
      ...[execId, status, String(exitCode ?? "-"), new Date(startedAt).toISOString()],
      ...[
        showSize(stdoutBytes + stderrBytes),
        (typeof command === "string" ? command : command.join(" ")).slice(0, 60),
      ],
    ]);
    printTable(terminal, ["EXEC", "STATUS", "EXIT", "STARTED", "OUTPUT", "COMMAND"], rows);
  }
  return EXIT_CODES.ok;
}

/** Without `follow` it stops where the output was when it began. */
async function printOutput(
  terminal: Terminal,
  { execs }: Sandbox,
  { execId, status, stdoutBytes, stderrBytes }: ExecInfo,
  follow: boolean,
  signal: AbortSignal,
): Promise<void> {
  const left = { stdout: stdoutBytes, stderr: stderrBytes };
  const isOver = () => !follow && status === "running" && left.stdout <= 0 && left.stderr <= 0;
  if (isOver()) return;
  for await (const event of execs.follow(execId, { signal })) {
    if (event.type === "end") return;
    if (event.type === "gap") {
      const count = event.toOffset - event.fromOffset;
      left[event.stream] -= count;
      terminal.error(`[the first ${count} bytes of ${event.stream} are no longer held]\n`);
    } else {
      left[event.stream] -= event.bytes.byteLength;
      if (!(await terminal.write(event.stream, event.bytes))) return;
    }
    if (isOver()) return;
  }
}

/** What each sandbox uses. Looking counts as a use: an idle sandbox is kept for another while. */
export async function statsCommand(terminal: Terminal, options: InsideOptions, signal: AbortSignal): Promise<void> {
  const ask = () =>
    withTarget(terminal, options, async (target) => {
      const rows: { user: string; thread: string; sandboxId: string; usage: ResourceUsage }[] = [];
      for (const { user, thread, sandbox } of await chosen(target, options)) {
        if (sandbox === null || (sandbox.state !== "leased" && sandbox.state !== "parked")) continue;
        await using lease = await target.acquire({ thread, user }, "sandlot stats", signal);
        rows.push({ user, thread, sandboxId: lease.sandbox.id, usage: await lease.sandbox.usage() });
      }
      return rows;
    });
  const sandboxes = await withProgress(terminal, "Measuring", ask);
  if (options.json) return printJson(terminal, { sandboxes });
  if (sandboxes.length === 0) return terminal.error("There are no sandboxes.\n");
  const of = (used: number | null, max: number | null, show: (value: number) => string) =>
    `${used === null ? "?" : show(used)} / ${max === null ? "-" : show(max)}`;
  printTable(
    terminal,
    ["THREAD", "USER", "MEMORY", "PROCESSES", "CPU", "DISK"],
    sandboxes.map(
      ({ thread, user, usage: { memoryBytes, memoryMaxBytes, processCount, processMax, cpuMs, ...disk } }) => [
        ...[thread, user, of(memoryBytes, memoryMaxBytes, showSize), of(processCount, processMax, String)],
        cpuMs === null ? "?" : showDuration(Math.round(cpuMs)),
        of(disk.diskBytes ?? null, disk.diskMaxBytes ?? null, showSize),
      ],
    ),
  );
}

async function chosen(target: Target, { thread, user }: InsideOptions) {
  return thread === undefined ? target.threads({ user }) : [await requireThread(target, { thread, user })];
}

export interface PortCommandOptions extends InsideOptions {
  readonly ttl?: number;
  /** Where to listen on this machine; without, any free port. */
  readonly listen?: number;
}

/** Ports on which something listens; or, of one port, a link (gateway) or a local port that leads there until Ctrl-C. */
export async function portCommand(
  terminal: Terminal,
  port: number | undefined,
  options: PortCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  await withTarget(terminal, options, async (target) => {
    const thread = namedThread(options);
    const { user, ttl } = options;
    if (port === undefined) {
      await using lease = await existing(target, options, "sandlot port", signal);
      const ports = await lease.sandbox.ports.list();
      if (options.json) return printJson(terminal, { ports });
      if (ports.length === 0) return terminal.error(`Nothing listens in the sandbox of thread ${thread}.\n`);
      const rows = ports.map(({ port: number, address, pid }) => [String(number), address, String(pid ?? "-")]);
      return printTable(terminal, ["PORT", "ADDRESS", "PID"], rows);
    }
    await requireThread(target, { thread, user });
    const link = await target.linkPort({ thread, user }, port, ttl);
    if (link === null) {
      await using lease = await existing(target, options, "sandlot port", signal);
      return await forward(terminal, lease, port, options, signal);
    }
    if (options.json) return printJson(terminal, link);
    terminal.out(`${link.url}\n`);
    terminal.error(`Good until ${new Date(link.expiresAt).toISOString()}.\n`);
  });
}

export interface AioCommandOptions extends InsideOptions {
  readonly ttl?: number;
  readonly listen?: number;
  /** All URLs of the thread, or the one with this id. */
  readonly revoke?: string | true;
}

/** A URL of the thread's AIO API (gateway), or a local port that leads there until Ctrl-C. */
export async function aioCommand(terminal: Terminal, options: AioCommandOptions, signal: AbortSignal): Promise<void> {
  await withTarget(terminal, options, async (target) => {
    const name = { thread: namedThread(options), user: options.user };
    if (options.revoke !== undefined) {
      const revoked = await target.revokeAioUrls(name, options.revoke === true ? undefined : options.revoke);
      if (revoked === null) {
        const problem = "without a gateway there are no AIO URLs to revoke; a local port ends with its command";
        throw new SandlotError("invalid_request", { field: "--revoke", problem });
      }
      if (options.json) return printJson(terminal, { revoked });
      return terminal.error(`${revoked} AIO URLs of thread ${name.thread} revoked.\n`);
    }
    const link = await target.createAioUrl(name, options.ttl);
    if (link === null) {
      await using lease = await target.acquire(name, "sandlot aio", signal);
      return await forward(terminal, lease, AIO_TUNNEL_PORT, options, signal);
    }
    if (options.json) return printJson(terminal, link);
    terminal.out(`${link.url}\n`);
    terminal.error(`A secret: it needs no key. Good until ${new Date(link.expiresAt).toISOString()}.\n`);
    terminal.error(`Revoke it with: sandlot aio -t ${name.thread} --revoke ${link.linkId}\n`);
  });
}

/** Until interrupted. Each connection is passed on by itself; what breaks one is told and ends no other. */
async function forward(
  terminal: Terminal,
  { connect }: TargetLease,
  port: number,
  { listen = 0, json }: PortCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  if (connect === undefined) throw new SandlotError("internal", { problem: "a lease without connections" });
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    connect(port).then(
      (inside) => {
        inside.on("error", () => socket.destroy());
        socket.on("close", () => inside.destroy());
        socket.pipe(inside).pipe(socket);
      },
      (error: unknown) => {
        terminal.error(`port ${port}: ${error instanceof Error ? error.message : String(error)}\n`);
        socket.destroy();
      },
    );
  });
  const address = await onThisMachine("listen", `port ${listen}`, () => listening(server, listen));
  if (json) terminal.out(`${JSON.stringify({ url: `http://127.0.0.1:${address}` })}\n`);
  else terminal.out(`http://127.0.0.1:${address} leads to port ${port} of the sandbox, until Ctrl-C\n`);
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
  server.close();
}

function listening(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const taken = error.code === "EADDRINUSE" || error.code === "EACCES";
      const problem = `port ${port} of this machine cannot be used (${error.code}); choose another with --listen`;
      reject(taken ? new SandlotError("invalid_request", { field: "--listen", problem }) : error);
    });
    server.listen(port, "127.0.0.1", () => {
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : port);
    });
  });
}

/** A lease on a sandbox that is there. A thread without one is told as such, and gets none. */
async function existing(
  target: Target,
  options: InsideOptions,
  purpose: string,
  signal: AbortSignal,
): Promise<TargetLease> {
  const name = { thread: namedThread(options), user: options.user };
  const { sandbox } = await requireThread(target, name);
  if (sandbox === null || sandbox.state === "stopping")
    throw new SandlotError("sandbox_not_found", { id: `of thread ${name.thread}` });
  return target.acquire(name, purpose, signal);
}
