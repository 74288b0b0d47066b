/**
 * MCP over HTTP, for the gateway to serve under `/mcp`. Each request is independent; its authentication decides the
 * user and thread. State between requests (the shell's directory, the files read) is a run. The client chooses the run:
 *
 *   2025        the session that `initialize` gave it (`Mcp-Session-Id`): a run per connection
 *   2026        the header `Sandlot-Run`, since that generation has no sessions; without it, the thread's shared run
 *   both        `_meta["sandlot/run"]` of a call, for agents that share a connection
 *
 * Invariants
 * - The caller of `handle` decides the user, never the request's own content. Sessions and names only choose among the
 *   runs of that user and thread, so knowing another user's session is worthless.
 * - A lease is held while requests come and for a short while after, then released; the next request takes another.
 * - A session that its client has ended (`DELETE`) is not found any more. A session unknown to this process belongs to
 *   another process, or is older than it, and begins again.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, isInitializeRequest, type McpHttpHandler } from "@modelcontextprotocol/server";
import { type SandboxSource, sandlotTools, type ToolBoxOptions } from "@sandlot/client/tools";
import { isSandlotError, SandlotError } from "@sandlot/contract";
import { systemWorld } from "../world/system-world.ts";
import type { World } from "../world/world.ts";
import { MCP_REPLY_MS } from "./limits.ts";
import { type RunOwner, Runs, runNameFrom } from "./runs.ts";
import { createMcpServer } from "./server.ts";
import { checkToolNames } from "./tool-names.ts";

/** The user and thread of a request, from its authentication. */
export interface McpCaller {
  readonly user: string;
  readonly thread: string;
}

export interface McpHttpOptions extends Omit<ToolBoxOptions, "user" | "thread" | "signal"> {
  readonly source: SandboxSource;
  /** Time and randomness. Default: the machine's own. */
  readonly world?: World;
  readonly version: string;
  readonly progressIntervalMs?: number;
  readonly onError?: (error: Error) => void;
}

export interface McpHttp {
  /** Handles one request. `body` if it is already parsed. */
  handle(request: IncomingMessage, response: ServerResponse, caller: McpCaller, body?: unknown): Promise<void>;
  /** Ends every run and releases their leases. */
  close(): Promise<void>;
}

/** A minute between two calls is thinking; more is a client that may not come back. */
const IDLE_RELEASE_MS = 60_000;
/** Ended sessions that are remembered, to refuse their requests. */
const ENDED_REMEMBERED = 10_000;
const SESSION_HEADER = "mcp-session-id";
const RUN_HEADER = "sandlot-run";

export function createMcpHttp(options: McpHttpOptions): McpHttp {
  checkToolNames(options.tools);
  const { world = systemWorld(), version, progressIntervalMs, onError } = options;
  const runs = new Runs(({ user, thread }) =>
    sandlotTools(options.source, {
      purpose: "mcp",
      replyWithinMs: MCP_REPLY_MS,
      idleReleaseMs: IDLE_RELEASE_MS,
      ...options,
      user,
      thread,
    }),
  );
  const handler = createMcpHandler(
    ({ authInfo }) => {
      const owner = ownerOf(authInfo);
      const { toolBox, calls } = runs.of(owner);
      return createMcpServer({
        ...{ toolBox, calls, world, version, isNewThread: false },
        runNamed: (name) => runs.of(owner, name),
        ...(progressIntervalMs === undefined ? {} : { progressIntervalMs }),
      });
    },
    onError === undefined ? {} : { onerror: onError },
  );
  const answer = toNodeHandler(withSessions(handler, world));
  const ended = new EndedSessions();
  return {
    async handle(request, response, { user, thread }, body) {
      const client = clientOf(request);
      if (client === null) return refuse(response, 400, `${RUN_HEADER} or ${SESSION_HEADER} is empty or too long`);
      const owner = { user, thread, client };
      if (ended.has(owner)) return refuse(response, 404, "Session not found");
      if (request.method === "DELETE" && client !== "") {
        ended.add(owner);
        await runs.end(owner);
        return void response.writeHead(204).end();
      }
      const auth = { token: "", clientId: user, scopes: [], extra: { ...owner } };
      const busy = runs.of(owner).busy();
      try {
        await answer(Object.assign(request, { auth }) as Parameters<typeof answer>[0], response, body);
      } finally {
        busy.done();
      }
    },
    async close() {
      await handler.close();
      await runs.close();
    },
  };
}

/** Gives a session to a client that initializes (2025), which the client then sends. */
function withSessions({ fetch }: McpHttpHandler, world: World): Pick<McpHttpHandler, "fetch"> {
  return {
    async fetch(request, options) {
      const isBeginning = request.method === "POST" && !request.headers.has(SESSION_HEADER);
      const copy = isBeginning && options?.parsedBody === undefined ? request.clone() : null;
      const response = await fetch(request, options);
      if (!isBeginning || !response.ok) return response;
      const message: unknown = copy === null ? options?.parsedBody : await copy.json();
      if ([message].flat().some((one) => isInitializeRequest(one)))
        response.headers.set(SESSION_HEADER, world.randomHex(16));
      return response;
    },
  };
}

function ownerOf(auth: { readonly extra?: Record<string, unknown> } | undefined): RunOwner {
  const { user, thread, client } = auth?.extra ?? {};
  if (typeof user === "string" && typeof thread === "string" && typeof client === "string")
    return { user, thread, client };
  throw new SandlotError("internal", { problem: "an MCP request came without a caller" });
}

/** The client's choice; `null` for an invalid one. A name takes precedence over a session. */
function clientOf({ headers }: IncomingMessage): string | null {
  try {
    const name = runNameFrom(headers[RUN_HEADER], RUN_HEADER);
    if (name !== undefined) return `run ${name}`;
    const session = runNameFrom(headers[SESSION_HEADER], SESSION_HEADER);
    return session === undefined ? "" : `session ${session}`;
  } catch (error) {
    if (isSandlotError(error, "invalid_request")) return null;
    throw error;
  }
}

class EndedSessions {
  readonly #keys = new Set<string>();

  has(owner: RunOwner): boolean {
    return this.#keys.has(JSON.stringify(owner));
  }

  /** A named run may begin again under its name; a session may not. */
  add(owner: RunOwner): void {
    if (owner.client.startsWith("session ")) this.#keys.add(JSON.stringify(owner));
    for (const oldest of this.#keys) {
      if (this.#keys.size <= ENDED_REMEMBERED) break;
      this.#keys.delete(oldest);
    }
  }
}

function refuse(response: ServerResponse, status: number, message: string): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32_000, message }, id: null }));
}
