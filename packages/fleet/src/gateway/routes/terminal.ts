/**
 * The terminal's WebSocket. Every refusal happens before the connection is upgraded, so it is an ordinary HTTP error.
 */

import {
  isSandlotError,
  type Sandbox,
  SandlotError,
  type Terminal,
  terminalQuerySchema,
  threadParamsSchema,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import type { Lease } from "../../fleet.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { serveTerminal } from "../terminal/terminal-connection.ts";
import { goneSignal, purposeOf, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

type Query = z.infer<typeof terminalQuerySchema>;

interface Opened {
  readonly lease: Lease;
  readonly terminal: Terminal;
  /** From here on other code releases both. */
  taken: boolean;
}

export function terminalRoutes(app: GatewayApp, context: GatewayContext): void {
  const opened = new WeakMap<FastifyRequest, Opened>();
  const { world, settings, draining, streams } = context;

  app.route({
    method: "GET",
    url: "/v1/threads/:thread/terminal",
    config: { access: "thread", purpose: "terminal" },
    schema: {
      summary: "A terminal (WebSocket)",
      description:
        "Binary frames are bytes. Text frames are `{ type: resize, columns, rows }` and `{ type: ack, bytes }` from " +
        "the client, `{ type: ack, terminalId, offset, droppedBytes }` and `{ type: exit, exitCode, signal }` to it. " +
        "A browser offers the subprotocols `sandlot.v1` and `sandlot.key.KEY`.",
      tags: ["terminal"],
      params: threadParamsSchema,
      querystring: terminalQuerySchema,
      response: { ...THREAD_ERRORS },
    },
    preHandler: async (request, reply) => {
      opened.set(request, await open(context, request, reply, request.query));
    },
    handler: () => {
      throw notUpgraded();
    },
    wsHandler: async (socket, request) => {
      const found = opened.get(request);
      if (found === undefined) return socket.close(1011);
      const { lease, terminal } = found;
      found.taken = true;
      try {
        const offset = request.query.offset ?? 0;
        await streams.run(request.caller?.user ?? null, () =>
          serveTerminal({ socket, terminal, world, settings, draining, offset }),
        );
      } catch (error) {
        socket.close(isSandlotError(error, "rate_limited") ? 1013 : 1011);
      } finally {
        await context.threads.release(lease);
      }
    },
  });
}

async function open(
  context: GatewayContext,
  request: FastifyRequest,
  reply: FastifyReply,
  query: Query,
): Promise<Opened> {
  if (request.ws !== true) throw notUpgraded();
  const signal = goneSignal(reply);
  const lease = await context.threads.acquire(threadOf(request), purposeOf(request), signal);
  try {
    const terminal = await openTerminal(lease.sandbox, query);
    signal.throwIfAborted();
    const opened: Opened = { lease, terminal, taken: false };
    // The handshake may still fail, and then no handler takes it.
    request.raw.socket.once("close", () => {
      if (!opened.taken) void terminal.detach().finally(() => context.threads.release(lease));
    });
    return opened;
  } catch (error) {
    await context.threads.release(lease);
    throw error;
  }
}

async function openTerminal(sandbox: Sandbox, { terminalId, columns, rows, offset, cwd }: Query): Promise<Terminal> {
  const known =
    terminalId !== undefined && (await sandbox.terminals.list()).some((one) => one.terminalId === terminalId);
  if (terminalId !== undefined && known) {
    const terminal = await sandbox.terminals.attach(terminalId, offset === undefined ? {} : { fromOffset: offset });
    terminal.resize(columns, rows);
    return terminal;
  }
  return sandbox.terminals.open({
    columns,
    rows,
    ...(terminalId === undefined ? {} : { terminalId }),
    ...(cwd === undefined ? {} : { cwd }),
  });
}

function notUpgraded(): SandlotError {
  return new SandlotError("invalid_request", { field: "Upgrade", problem: "this route is a WebSocket" });
}
