/**
 * The MCP server: the same tools that every framework gets, and the user's files as resources. It is made anew for each
 * connection (stdio) or request (HTTP); what lasts longer, the run with its lease and its shell, is the tool box.
 *
 * Invariants
 * - Listing tools or resources starts no sandbox. The first call of a tool, or reading a resource, does.
 * - A cancelled call ends its command. A call that takes long tells so as long as the client asked for it.
 */

import { McpServer, type ServerContext } from "@modelcontextprotocol/server";
import { SANDBOX_INSTRUCTIONS, SANDBOX_TOOLS, type ToolBox, type ToolOutput } from "@sandlot/client/tools";
import { SandlotError } from "@sandlot/contract";
import type { World } from "../world/world.ts";
import type { CallsUnderWay } from "./calls-under-way.ts";
import { registerFiles } from "./files.ts";

export interface McpParts {
  readonly toolBox: ToolBox;
  readonly world: World;
  readonly version: string;
  /** Where cancellations may come from another server object than the call: the calls of this caller. */
  readonly calls?: CallsUnderWay;
  /** How often a call that is under way says so. */
  readonly progressIntervalMs?: number;
}

/** Well below the minute after which clients commonly give up. */
const PROGRESS_INTERVAL_MS = 5_000;

export function createMcpServer(parts: McpParts): McpServer {
  const { toolBox, version } = parts;
  const server = new McpServer({ name: "sandlot", title: "Sandlot", version }, { instructions: SANDBOX_INSTRUCTIONS });
  for (const { name, title, description, input, readOnly } of toolBox.tools) {
    const annotations = {
      title,
      readOnlyHint: readOnly,
      destructiveHint: !readOnly,
      idempotentHint: readOnly,
      // Whether a command reaches beyond the sandbox is up to its network; the others never do.
      openWorldHint: name === "bash",
    };
    server.registerTool(name, { title, description, inputSchema: input, annotations }, (args, context) =>
      withProgress(parts, context, () => callTool(parts, server, name, args, context)),
    );
  }
  registerFiles(server, toolBox);
  const { calls } = parts;
  if (calls !== undefined)
    server.server.setNotificationHandler("notifications/cancelled", ({ params: { requestId, reason } }) => {
      if (requestId !== undefined) calls.cancel(requestId, reason ?? "the client cancelled the call");
    });
  return server;
}

async function callTool(parts: McpParts, server: McpServer, name: string, args: unknown, { mcpReq }: ServerContext) {
  const { toolBox, calls } = parts;
  const wasUsed = toolBox.run.generation !== null;
  const call = (signal: AbortSignal) => toolBox.call(name, args, { signal });
  const output = await (calls === undefined ? call(mcpReq.signal) : calls.run(mcpReq.id, mcpReq.signal, call));
  if (!wasUsed && server.isConnected()) server.sendResourceListChanged();
  return contentOf(output);
}

function contentOf({ text, images, isError }: ToolOutput) {
  const pictures = images.map(({ mimeType, bytes }) => ({
    type: "image" as const,
    mimeType,
    data: Buffer.from(bytes).toString("base64"),
  }));
  return { content: [{ type: "text" as const, text }, ...pictures], isError };
}

/** Tells the client, where it asked, that the call goes on. */
async function withProgress<T>(parts: McpParts, { mcpReq }: ServerContext, call: () => Promise<T>): Promise<T> {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return call();
  const { world, progressIntervalMs = PROGRESS_INTERVAL_MS } = parts;
  const begunAt = world.monotonicMs();
  let ended = false;
  const tell = () => {
    if (ended) return;
    const progress = (world.monotonicMs() - begunAt) / 1000;
    const message = `running for ${progress.toFixed(1)} s`;
    // A client that is gone hears nothing; the call's own signal ends the call.
    mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, message } }).catch(() => {});
    timer = world.timer(progressIntervalMs, tell, { background: true });
  };
  let timer = world.timer(progressIntervalMs, tell, { background: true });
  try {
    return await call();
  } finally {
    ended = true;
    timer.cancel();
  }
}

/** The names of the tools, for whoever documents or limits them. */
export const MCP_TOOL_NAMES: readonly string[] = SANDBOX_TOOLS.map(({ name }) => name);

/** Refuses names of tools that do not exist, which would otherwise silently offer nothing. */
export function checkToolNames(names: readonly string[] | undefined): void {
  const unknown = names?.find((name) => !MCP_TOOL_NAMES.includes(name));
  if (unknown === undefined) return;
  const problem = `there is no tool ${unknown}; there are ${MCP_TOOL_NAMES.join(", ")}`;
  throw new SandlotError("invalid_request", { field: "tools", problem });
}
