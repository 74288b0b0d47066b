/**
 * A thread's tools over the Model Context Protocol: `POST /mcp/threads/{thread}`, with the same keys as everything else.
 * What goes over it is the protocol's own, errors included, so it is not part of the OpenAPI document.
 */

import { threadParamsSchema } from "@sandlot/contract";
import type { McpHttp } from "../../mcp/index.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { threadOf } from "../thread-use.ts";

export function mcpRoutes(app: GatewayApp, { fleet, world }: GatewayContext): void {
  let served: Promise<McpHttp> | null = null;
  const serve = async () => {
    const { createMcpHttp } = await import("../../mcp/index.ts");
    const onError = (error: Error) => app.log.warn({ err: error }, "an MCP request failed");
    return createMcpHttp({ source: fleet, version: "1", world, onError });
  };
  // Its leases are given back before the fleet is closed.
  app.addHook("onClose", async () => {
    if (served !== null) await (await served).close();
  });

  app.post(
    "/mcp/threads/:thread",
    { config: { access: "thread", purpose: "mcp" }, schema: { hide: true, params: threadParamsSchema } },
    async (request, reply) => {
      served ??= serve();
      const mcp = await served;
      const { user, thread } = threadOf(request);
      reply.hijack();
      for (const [name, value] of Object.entries(reply.getHeaders()))
        if (value !== undefined) reply.raw.setHeader(name, value);
      await mcp.handle(request.raw, reply.raw, { user, thread }, request.body);
      return reply;
    },
  );
}
