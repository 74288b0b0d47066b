/** MCP servers over a stage, with a client of either generation, over stdio and over HTTP. */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { PassThrough } from "node:stream";
import { createMcpHttp, runMcpStdio } from "../../../../fleet/src/mcp/index.ts";
import { systemWorld } from "../../../../fleet/src/world/system-world.ts";
import type { ToolPolicy } from "../../../src/tools/index.ts";
import type { ToolStage } from "../../tools/tool-stage.ts";
import { connectMcp, GENERATIONS, type McpConnection, type McpGeneration } from "../mcp-clients.ts";
import type { ToolDriver } from "../tool-suite.ts";

const world = systemWorld();
const version = "0.0.0";

export async function overStdio(
  generation: McpGeneration,
  { source }: ToolStage,
  thread?: string,
  policy: ToolPolicy = {},
) {
  const stdin = new PassThrough();
  const stdout = new PassThrough();
  const threads: string[] = [];
  const serving = runMcpStdio({
    ...{ source, world, version, stdin, stdout, progressIntervalMs: 20, ...policy },
    ...(thread === undefined ? {} : { thread }),
    onReady: (about) => threads.push(about.thread),
  });
  const client = await connectMcp(generation, { stdin, stdout });
  return Object.assign(Object.create(client) as McpConnection, {
    threads,
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await serving;
    },
  });
}

/** A server for `/user/thread`, and the requested number of clients. */
export async function serveHttp({ source }: ToolStage, policy: ToolPolicy = {}) {
  const mcp = createMcpHttp({ source, world, version, progressIntervalMs: 20, ...policy });
  const server = createServer((request, response) => {
    const [, user = "", thread = ""] = (request.url ?? "").split("/");
    void mcp.handle(request, response, { user, thread });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const urlOf = (path: string) => new URL(`http://127.0.0.1:${port}/${path}`);
  return {
    urlOf,
    connect: (generation: McpGeneration, path: string, headers: Record<string, string> = {}) =>
      connectMcp(generation, { url: urlOf(path), headers }),
    async [Symbol.asyncDispose]() {
      await mcp.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export async function overHttp(generation: McpGeneration, stage: ToolStage, thread: string, policy: ToolPolicy = {}) {
  const served = await serveHttp(stage, policy);
  const client = await served.connect(generation, `default/${thread}`);
  return Object.assign(Object.create(client) as McpConnection, {
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await served[Symbol.asyncDispose]();
    },
  });
}

export const mcpDrivers: readonly ToolDriver[] = GENERATIONS.flatMap((generation) => [
  { name: `MCP ${generation} over stdio`, open: (...args) => overStdio(generation, ...args) },
  { name: `MCP ${generation} over HTTP`, open: (...args) => overHttp(generation, ...args) },
]);
