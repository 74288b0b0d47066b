/**
 * MCP over HTTP, for the gateway to serve under `/mcp`. The protocol has no sessions here: each request stands alone and
 * says, through whoever authenticated it, for which user and thread it is. What must last from one request to the next
 * (the shell's directory, what was read) is kept per user and thread.
 *
 * Invariants
 * - Who is asking comes from the caller of `handle`, never from the request's own content.
 * - A lease is held while requests come and for a short while after, then given back; the next request takes another.
 * - At most `RUNS_MAX` runs are kept; the one that was used longest ago goes first, never one that is in use.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler } from "@modelcontextprotocol/server";
import { type SandboxSource, sandlotTools, type ToolBox, type ToolBoxOptions } from "@sandlot/client/tools";
import { SandlotError } from "@sandlot/contract";
import { systemWorld } from "../world/system-world.ts";
import type { World } from "../world/world.ts";
import { CallsUnderWay } from "./calls-under-way.ts";
import { checkToolNames, createMcpServer } from "./server.ts";

/** For whom a request is, as its authentication decided. */
export interface McpCaller {
  readonly user: string;
  readonly thread: string;
}

export interface McpHttpOptions extends Omit<ToolBoxOptions, "user" | "thread" | "signal"> {
  readonly source: SandboxSource;
  /** Time and chance. Default: the machine's own. */
  readonly world?: World;
  readonly version: string;
  readonly progressIntervalMs?: number;
  readonly onError?: (error: Error) => void;
}

export interface McpHttp {
  /** Answers one request. `body` where somebody has parsed it already. */
  handle(request: IncomingMessage, response: ServerResponse, caller: McpCaller, body?: unknown): Promise<void>;
  /** Ends every run and gives their leases back. */
  close(): Promise<void>;
}

/** A minute between two calls is thinking; more is a client that may not come back. */
const IDLE_RELEASE_MS = 60_000;
const RUNS_MAX = 1_000;

export function createMcpHttp(options: McpHttpOptions): McpHttp {
  checkToolNames(options.tools);
  const runs = new Runs(options);
  const { world = systemWorld(), version, progressIntervalMs, onError } = options;
  const handler = createMcpHandler(
    ({ authInfo }) => {
      const { toolBox, calls } = runs.of(callerOf(authInfo));
      return createMcpServer({
        toolBox,
        calls,
        world,
        version,
        ...(progressIntervalMs === undefined ? {} : { progressIntervalMs }),
      });
    },
    onError === undefined ? {} : { onerror: onError },
  );
  const answer = toNodeHandler(handler);
  return {
    async handle(request, response, { user, thread }, body) {
      const auth = { token: "", clientId: user, scopes: [], extra: { user, thread } };
      const busy = runs.busy({ user, thread });
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

function callerOf(auth: { readonly extra?: Record<string, unknown> } | undefined): McpCaller {
  const { user, thread } = auth?.extra ?? {};
  if (typeof user === "string" && typeof thread === "string") return { user, thread };
  throw new SandlotError("internal", { problem: "an MCP request came without a caller" });
}

interface Kept {
  readonly toolBox: ToolBox;
  readonly calls: CallsUnderWay;
  requestsUnderWay: number;
}

/** The runs by user and thread, in the order of their last use. */
class Runs {
  readonly #options: McpHttpOptions;
  readonly #kept = new Map<string, Kept>();

  constructor(options: McpHttpOptions) {
    this.#options = options;
  }

  of(caller: McpCaller): Kept {
    return this.#keep(caller);
  }

  /** Keeps the run from being forgotten until `done`. */
  busy(caller: McpCaller): { done(): void } {
    const kept = this.#keep(caller);
    kept.requestsUnderWay += 1;
    return {
      done: () => {
        kept.requestsUnderWay -= 1;
      },
    };
  }

  async close(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    await Promise.all(all.map(({ toolBox }) => toolBox.end()));
  }

  #keep({ user, thread }: McpCaller): Kept {
    const key = JSON.stringify([user, thread]);
    const kept = this.#kept.get(key) ?? {
      toolBox: sandlotTools(this.#options.source, {
        purpose: "mcp",
        idleReleaseMs: IDLE_RELEASE_MS,
        ...this.#options,
        user,
        thread,
      }),
      calls: new CallsUnderWay(),
      requestsUnderWay: 0,
    };
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    this.#forgetOldest();
    return kept;
  }

  #forgetOldest(): void {
    if (this.#kept.size <= RUNS_MAX) return;
    for (const [key, { toolBox, requestsUnderWay }] of this.#kept) {
      if (requestsUnderWay > 0) continue;
      this.#kept.delete(key);
      void toolBox.end();
      return;
    }
  }
}
