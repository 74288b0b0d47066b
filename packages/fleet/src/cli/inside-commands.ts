/**
 * `sandlot stats`, `port` and `aio`: what goes on inside sandboxes. Only `aio` makes one, when it is used.
 */

import { createServer, type Server } from "node:net";
import { AIO_TUNNEL_PORT, isoTime, type ResourceUsage, SandlotError } from "@sandlot/contract";
import { showDuration, showSize } from "../world/units.ts";
import { onThisMachine } from "./host-trouble.ts";
import { namedThread } from "./named-thread.ts";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import {
  existingLease,
  requireThread,
  type Target,
  type TargetLease,
  type TargetOptions,
  withTarget,
} from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

interface InsideOptions extends TargetOptions {
  readonly thread?: string;
  readonly user?: string;
  readonly json: boolean;
}

/** Each sandbox's usage. Reading counts as a use: it resets the idle time of a sandbox. */
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
  /** The port on this machine; absent: any free port. */
  readonly listen?: number;
}

/** Listening ports; or, for one port, a link (gateway) or a local port that forwards to it until Ctrl-C. */
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
      await using lease = await existingLease(target, { thread, user }, "sandlot port", signal);
      const ports = await lease.sandbox.ports.list();
      if (options.json) return printJson(terminal, { ports });
      if (ports.length === 0) return terminal.error(`Nothing listens in the sandbox of thread ${thread}.\n`);
      const rows = ports.map(({ port: number, address, pid }) => [String(number), address, String(pid ?? "-")]);
      return printTable(terminal, ["PORT", "ADDRESS", "PID"], rows);
    }
    await requireThread(target, { thread, user });
    const link = await target.linkPort({ thread, user }, port, ttl);
    if (link === null) {
      await using lease = await existingLease(target, { thread, user }, "sandlot port", signal);
      return await forward(terminal, lease, port, options, signal);
    }
    if (options.json) return printJson(terminal, link);
    terminal.out(`${link.url}\n`);
    terminal.error(`Good until ${isoTime(link.expiresAt)}.\n`);
  });
}

export interface AioCommandOptions extends InsideOptions {
  readonly ttl?: number;
  readonly listen?: number;
  /** All URLs of the thread, or the one with this id. */
  readonly revoke?: string | true;
}

/** A URL of the thread's AIO API (gateway), or a local port that forwards to it until Ctrl-C. */
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
    terminal.error(`A secret: it needs no key. Good until ${isoTime(link.expiresAt)}.\n`);
    terminal.error(`Revoke it with: sandlot aio -t ${name.thread} --revoke ${link.linkId}\n`);
  });
}

/** Until interrupted. Connections are independent; a failure of one is reported and ends no other. */
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
