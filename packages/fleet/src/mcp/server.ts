/**
 * The MCP server: the same tools as in every framework, and the user's files as resources. A server object lives for
 * one connection (stdio) or request (HTTP); the tool box, with its run, lease and shell, lives longer.
 *
 * Invariants
 * - Listing tools starts no sandbox, nor does listing the files of a thread that only this connection knows. The first
 *   call of a tool, reading a resource, or listing the files of a named thread does.
 * - A call works in its connection's run, or in the one it names, so that agents that share a connection need not share
 *   a working directory.
 * - A client that has listed files over a connection is notified, over the same one, when a call has changed the list.
 * - A cancelled call ends its command. A long call reports progress, with its command's output, if the client asked for
 *   it.
 */

import { McpServer, type ServerContext } from "@modelcontextprotocol/server";
import {
  type CallOptions,
  type OutputPiece,
  sandboxInstructions,
  type ToolBox,
  type ToolOutput,
} from "@sandlot/client/tools";
import type { World } from "../world/world.ts";
import type { CallsUnderWay } from "./calls-under-way.ts";
import { type ListedFiles, registerFiles } from "./files.ts";
import { type KeptRun, runNameFrom } from "./runs.ts";

export interface McpParts {
  readonly toolBox: ToolBox;
  /** The run that a call names (`_meta["sandlot/run"]`), with its own shell. */
  readonly runNamed: (name: string) => KeptRun;
  /** The thread cannot have files from before this connection. */
  readonly isNewThread: boolean;
  readonly world: World;
  readonly version: string;
  /** Text for the model, beyond what applies to every sandbox. */
  readonly more?: string;
  /** The calls of this caller, where a cancellation may arrive at another server object than the call. */
  readonly calls?: CallsUnderWay;
  /** How often a running call reports progress. */
  readonly progressIntervalMs?: number;
}

/** Well below the minute after which clients commonly give up. */
const PROGRESS_INTERVAL_MS = 5_000;

/** A message carries the end of the output. The response to the call has all of it. */
const OUTPUT_MAX_CHARS = 4_000;
/** How long output waits for more, so that a command that prints much sends few messages. */
const OUTPUT_DELAY_MS = 500;

/** The key with which a call names its run. */
const RUN_META_KEY = "sandlot/run";

export function createMcpServer(parts: McpParts): McpServer {
  const { toolBox, version } = parts;
  const instructions = [sandboxInstructions(toolBox.about), parts.more ?? ""].join(" ").trim();
  const server = new McpServer({ name: "sandlot", title: "Sandlot", version }, { instructions });
  const files = registerFiles(server, toolBox, parts.isNewThread);
  for (const { name, title, description, input, readOnly } of toolBox.tools) {
    const annotations = {
      title,
      readOnlyHint: readOnly,
      destructiveHint: !readOnly,
      idempotentHint: readOnly,
      // The network decides whether a command reaches beyond the sandbox; the other tools never do.
      openWorldHint: name === "bash",
    };
    server.registerTool(name, { title, description, inputSchema: input, annotations }, (args, context) =>
      withProgress(parts, context, async (onOutput) => {
        const output = await callTool(parts, name, args, context, onOutput);
        if (!readOnly) await tellOfFiles(server, files, context.mcpReq.signal);
        return contentOf(output);
      }),
    );
  }
  const { calls } = parts;
  if (calls !== undefined)
    server.server.setNotificationHandler("notifications/cancelled", ({ params: { requestId, reason } }) => {
      if (requestId !== undefined) calls.cancel(requestId, reason ?? "the client cancelled the call");
    });
  return server;
}

async function callTool(
  parts: McpParts,
  name: string,
  args: unknown,
  { mcpReq }: ServerContext,
  onOutput: CallOptions["onOutput"],
) {
  const { calls } = parts;
  const run = runNameFrom(mcpReq._meta?.[RUN_META_KEY], `_meta["${RUN_META_KEY}"]`);
  const named = run === undefined ? null : parts.runNamed(run);
  const toolBox = named?.toolBox ?? parts.toolBox;
  const busy = named?.busy();
  try {
    const call = (signal: AbortSignal) => toolBox.call(name, args, { signal, onOutput });
    return await (calls === undefined ? call(mcpReq.signal) : calls.run(mcpReq.id, mcpReq.signal, call));
  } finally {
    busy?.done();
  }
}

/** A failure to list, for example because the sandbox just died, must not lose the call's response. */
async function tellOfFiles(server: McpServer, files: ListedFiles, signal: AbortSignal): Promise<void> {
  const changed = await files.haveChanged(signal).catch(() => false);
  if (changed && server.isConnected()) server.sendResourceListChanged();
}

function contentOf({ text, images, isError }: ToolOutput) {
  const pictures = images.map(({ mimeType, bytes }) => ({
    type: "image" as const,
    mimeType,
    data: Buffer.from(bytes).toString("base64"),
  }));
  return { content: [{ type: "text" as const, text }, ...pictures], isError };
}

type Progressing<T> = (onOutput: CallOptions["onOutput"]) => Promise<T>;

/** Reports to a client that asked for it that the call goes on, with the new output of its command. */
async function withProgress<T>(parts: McpParts, { mcpReq }: ServerContext, call: Progressing<T>): Promise<T> {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return call(undefined);
  const { world, progressIntervalMs = PROGRESS_INTERVAL_MS } = parts;
  const begunAt = world.monotonicMs();
  let ended = false;
  let printed = "";
  const tell = () => {
    if (ended) return;
    const progress = (world.monotonicMs() - begunAt) / 1000;
    const message = `running for ${progress.toFixed(1)} s${printed === "" ? "" : `\n${printed}`}`;
    printed = "";
    // A disconnected client gets nothing; the call's own signal ends the call.
    mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, message } }).catch(() => {});
    timer.cancel();
    timer = world.timer(progressIntervalMs, tell, { background: true });
  };
  let timer = world.timer(progressIntervalMs, tell, { background: true });
  const onOutput = ({ text }: OutputPiece) => {
    if (ended) return;
    // The first output is sent soon, with everything that comes until then.
    if (printed === "") {
      timer.cancel();
      timer = world.timer(Math.min(OUTPUT_DELAY_MS, progressIntervalMs), tell, { background: true });
    }
    printed = (printed + text).slice(-OUTPUT_MAX_CHARS);
  };
  try {
    return await call(onOutput);
  } finally {
    ended = true;
    timer.cancel();
  }
}
