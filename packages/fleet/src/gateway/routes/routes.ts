/** All routes of the gateway. Their order has no meaning. */

import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { dashboardRoutes } from "../dashboard/routes.ts";
import { aioRoutes } from "./aio.ts";
import { artifactRoutes } from "./artifacts.ts";
import { checkpointRoutes } from "./checkpoints.ts";
import { docsRoutes } from "./docs.ts";
import { eventRoutes } from "./events.ts";
import { execRoutes } from "./exec.ts";
import { execsRoutes } from "./execs.ts";
import { fileContentRoutes } from "./file-content.ts";
import { fileRoutes } from "./files.ts";
import { folderArchiveRoutes } from "./folder-archive.ts";
import { healthRoutes } from "./health.ts";
import { keyRoutes } from "./keys.ts";
import { leaseRoutes } from "./leases.ts";
import { mcpRoutes } from "./mcp.ts";
import { operatorRoutes } from "./operators.ts";
import { portRoutes } from "./ports.ts";
import { provisionerRoutes } from "./provisioner.ts";
import { insideRoutes } from "./sandbox.ts";
import { sandboxRoutes } from "./sandboxes.ts";
import { terminalRoutes } from "./terminal.ts";
import { threadRoutes } from "./threads.ts";
import { timelineRoutes } from "./timeline.ts";
import { DEERFLOW_ROUTES, OWN_ROUTES, uploadRoutes } from "./uploads.ts";

export async function routes(app: GatewayApp, context: GatewayContext): Promise<void> {
  healthRoutes(app, context);
  leaseRoutes(app, context);
  execRoutes(app, context);
  execsRoutes(app, context);
  insideRoutes(app, context);
  fileRoutes(app, context);
  folderArchiveRoutes(app, context);
  threadRoutes(app, context);
  checkpointRoutes(app, context);
  timelineRoutes(app, context);
  sandboxRoutes(app, context);
  eventRoutes(app, context);
  keyRoutes(app, context);
  operatorRoutes(app, context);
  terminalRoutes(app, context);
  portRoutes(app, context);
  aioRoutes(app, context);
  provisionerRoutes(app, context);
  mcpRoutes(app, context);
  docsRoutes(app);
  dashboardRoutes(app, context);
  await app.register(async (scope) => fileContentRoutes(scope as unknown as GatewayApp, context));

  for (const roof of [OWN_ROUTES, DEERFLOW_ROUTES]) {
    artifactRoutes(app, context, roof);
    await app.register(async (scope) => uploadRoutes(scope as unknown as GatewayApp, context, roof));
  }

  app.get(
    "/openapi.json",
    {
      config: { access: "docs" },
      schema: {
        summary: "This API as an OpenAPI document",
        tags: ["health"],
        response: { 200: z.record(z.string(), z.unknown()) },
      },
    },
    (_request, reply) => {
      reply.header("content-type", "application/json; charset=utf-8").serializer(JSON.stringify);
      reply.send(app.swagger() as unknown as Record<string, unknown>);
    },
  );
}
