/**
 * A thread's tools over the Model Context Protocol: `POST /mcp/threads/{thread}`, with the usual keys. After
 * authentication, everything including errors follows that protocol.
 */

import { threadParamsSchema } from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import type { McpHttp } from "../../mcp/index.ts";
import { packageVersion } from "../../package-files.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { checkThread, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

const ROUTE = "/mcp/threads/:thread";

export function mcpRoutes(app: GatewayApp, { fleet, world }: GatewayContext): void {
  let served: Promise<McpHttp> | null = null;
  const serve = async () => {
    const { createMcpHttp } = await import("../../mcp/index.ts");
    const onError = (error: Error) => app.log.warn({ err: error }, "an MCP request failed");
    return createMcpHttp({ source: fleet, version: packageVersion(), world, onError });
  };
  // Its leases are released before the fleet is closed.
  app.addHook("onClose", async () => {
    if (served !== null) await (await served).close();
  });

  const answer = async (request: FastifyRequest, reply: FastifyReply) => {
    served ??= serve();
    const mcp = await served;
    const { user, thread, granted = null } = threadOf(request);
    await checkThread(fleet, { user, thread, granted });
    reply.hijack();
    for (const [name, value] of Object.entries(reply.getHeaders()))
      if (value !== undefined) reply.raw.setHeader(name, value);
    await mcp.handle(request.raw, reply.raw, { user, thread }, request.body);
    return reply;
  };
  const config = { access: "thread", purpose: "mcp" } as const;
  const given = { tags: ["mcp"], params: threadParamsSchema };

  app.post(
    ROUTE,
    {
      config,
      schema: {
        ...given,
        summary: "A message of the Model Context Protocol",
        description:
          "Streamable HTTP. A client of the 2025 generation gets a session (`Mcp-Session-Id`) when it initializes, one of " +
          "2026 names its run with `Sandlot-Run`: each has a shell of its own. Answers are the protocol's own.",
        body: z.any().describe("A JSON-RPC message."),
        response: {
          200: z.any().describe("A JSON-RPC message, or events that hold some."),
          202: z.any().describe("It was a notification."),
          400: z.any().describe("A JSON-RPC error."),
          406: z.any().describe("`Accept` must name both JSON and events."),
          ...THREAD_ERRORS,
        },
      },
    },
    answer,
  );
  const refused = { 405: z.any().describe("A JSON-RPC error."), ...THREAD_ERRORS };
  const listening = "Not offered: nothing is sent that was not asked for. The protocol asks for a 405";
  app.get(
    ROUTE,
    { config, exposeHeadRoute: false, schema: { ...given, summary: listening, response: refused } },
    answer,
  );
  const ending = "Ends the session or run that `Mcp-Session-Id` or `Sandlot-Run` names; 405 without one";
  const response = { 204: z.any().describe("It has ended."), ...refused };
  app.delete(ROUTE, { config, schema: { ...given, summary: ending, response } }, answer);
}
