/**
 * The MCP server: the same tools that every framework gets, and the user's files as resources. It is made anew for each
 * connection (stdio) or request (HTTP); what lasts longer, the run with its lease and its shell, is the tool box.
 *
 * Invariants
 * - Listing tools starts no sandbox, nor does listing the files of a thread that only this connection knows. The first call of a
 *   tool, reading a resource, or listing the files of a thread that somebody named does.
 * - A call works in the run of its connection, or in the one that it names, so that agents that share a connection need not share
 *   a working directory.
 * - A client that has listed files over a connection is told, over the same one, when a call has changed which there are.
 * - A cancelled call ends its command. A call that takes long tells so, with what its command has printed, as long as the client
 *   asked for it.
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
  /** The run that a call asks for by name (`_meta["sandlot/run"]`), with a shell of its own. */
  readonly runNamed: (name: string) => KeptRun;
  /** Nobody can have put files there before this connection. */
  readonly isNewThread: boolean;
  readonly world: World;
  readonly version: string;
  /** What the model is told beyond what is true of every sandbox. */
  readonly more?: string;
  /** Where cancellations may come from another server object than the call: the calls of this caller. */
  readonly calls?: CallsUnderWay;
  /** How often a call that is under way says so. */
  readonly progressIntervalMs?: number;
}

/** Well below the minute after which clients commonly give up. */
const PROGRESS_INTERVAL_MS = 5_000;

/** Of the output that one message carries: the end. The answer to the call has all of it. */
const OUTPUT_MAX_CHARS = 4_000;
/** How long output waits for more, so that a command that prints much sends few messages. */
const OUTPUT_DELAY_MS = 500;

/** Where a call says which run it is for. */
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
      // Whether a command reaches beyond the sandbox is up to its network; the others never do.
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

/** A list that cannot be had now, because the sandbox has just died for example, is no reason to lose the call's answer. */
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

/** Tells the client, where it asked, that the call goes on, and what its command has printed since it was last told. */
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
    // A client that is gone hears nothing; the call's own signal ends the call.
    mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, message } }).catch(() => {});
    timer.cancel();
    timer = world.timer(progressIntervalMs, tell, { background: true });
  };
  let timer = world.timer(progressIntervalMs, tell, { background: true });
  const onOutput = ({ text }: OutputPiece) => {
    if (ended) return;
    // The first piece is told soon; what comes until then goes with it.
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
