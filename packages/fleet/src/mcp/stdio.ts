/**
 * `sandlot mcp`: an MCP server over standard input and output, for an agent that starts it as its child. One connection
 * is one run: it has one lease, and releases it when the client closes the connection. A client whose agents share the
 * connection may name a run for each of them.
 *
 * Only the protocol may write to standard output.
 */

import type { Readable, Writable } from "node:stream";
import { type SandboxSource, sandlotTools, type ToolBoxOptions } from "@sandlot/client/tools";
import { systemWorld } from "../world/system-world.ts";
import type { World } from "../world/world.ts";
import { MCP_REPLY_MS } from "./limits.ts";
import { Runs } from "./runs.ts";
import { createMcpServer } from "./server.ts";
import { checkToolNames } from "./tool-names.ts";

export interface McpStdioOptions extends Omit<ToolBoxOptions, "thread"> {
  /** A fleet, or the client of a gateway. */
  readonly source: SandboxSource;
  /** Time and randomness. Default: the machine's own. */
  readonly world?: World;
  readonly version: string;
  /** Default: a separate thread for this connection. */
  readonly thread?: string;
  readonly progressIntervalMs?: number;
  /** Text for the model, beyond what applies to every sandbox. */
  readonly more?: string;
  readonly stdin?: Readable;
  readonly stdout?: Writable;
  /** Called before the first message is served. */
  readonly onReady?: (about: { readonly thread: string }) => void;
  /** Failures that concern no single call. */
  readonly onError?: (error: Error) => void;
}

/** Serves until the client closes its end, or the signal fires. Leaves no lease behind. */
export async function runMcpStdio(options: McpStdioOptions): Promise<void> {
  const { source, version, progressIntervalMs, stdin = process.stdin, stdout = process.stdout } = options;
  checkToolNames(options.tools);
  const world = options.world ?? systemWorld();
  const { serveStdio, StdioServerTransport } = await import("@modelcontextprotocol/server/stdio");
  const thread = options.thread ?? `mcp-${world.randomHex(8)}`;
  const runs = new Runs(() =>
    sandlotTools(source, { purpose: "mcp", replyWithinMs: MCP_REPLY_MS, ...options, thread }),
  );
  const owner = { user: options.user ?? "", thread, client: "" };
  const own = runs.of(owner);
  // Named runs may be dropped for newer ones; the connection's own stays.
  own.busy();
  const { toolBox } = own;
  const closed = untilClosed(stdin, stdout, options.signal);
  const parts = {
    ...{ toolBox, world, version, isNewThread: options.thread === undefined },
    runNamed: (name: string) => runs.of(owner, name),
    ...(progressIntervalMs === undefined ? {} : { progressIntervalMs }),
    ...(options.more === undefined ? {} : { more: options.more }),
  };
  const handle = serveStdio(() => createMcpServer(parts), {
    transport: new StdioServerTransport(stdin, stdout),
    ...(options.onError === undefined ? {} : { onerror: options.onError }),
  });
  try {
    options.onReady?.({ thread });
    await closed;
  } finally {
    await handle.close();
    await runs.close();
  }
}

function untilClosed(stdin: Readable, stdout: Writable, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      for (const name of ["end", "close", "error"] as const) stdin.off(name, done);
      for (const name of ["close", "error"] as const) stdout.off(name, done);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    for (const name of ["end", "close", "error"] as const) stdin.on(name, done);
    // A client that died shows as a broken pipe.
    for (const name of ["close", "error"] as const) stdout.on(name, done);
    signal?.addEventListener("abort", done, { once: true });
    if (signal?.aborted || stdin.readableEnded || stdin.destroyed) done();
  });
}
