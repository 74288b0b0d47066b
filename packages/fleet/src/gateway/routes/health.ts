/** Liveness, readiness and metrics. The first two are the only routes without a key. */

import { errorBodySchema, healthSchema, PROTOCOL_VERSION, readinessSchema } from "@sandlot/contract";
import { z } from "zod";
import { problemOf } from "../../observe/event-bus.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";

const WELL = JSON.stringify(healthSchema.parse({ status: "ok", protocol: PROTOCOL_VERSION }));

export function healthRoutes(app: GatewayApp, { fleet, metrics, draining }: GatewayContext): void {
  app.get(
    "/healthz",
    {
      config: { access: "open" },
      schema: { summary: "The process answers", security: [], tags: ["health"], response: { 200: healthSchema } },
    },
    (_request, reply) => {
      // A constant response needs no check and no encoding each time.
      reply
        .header("content-type", "application/json; charset=utf-8")
        .serializer(String)
        .send(WELL as never);
    },
  );

  app.get(
    "/readyz",
    {
      config: { access: "open" },
      schema: {
        summary: "It can serve: the store answers and the gateway is not being stopped",
        security: [],
        tags: ["health"],
        response: { 200: readinessSchema, 503: readinessSchema },
      },
    },
    async (_request, reply) => {
      if (draining.aborted) return reply.code(503).send({ status: "draining", checks: {} });
      try {
        await fleet.list();
        return { status: "ready" as const, checks: { store: "ok" } };
      } catch (error) {
        return reply.code(503).send({ status: "unavailable", checks: { store: problemOf(error) } });
      }
    },
  );

  app.get(
    "/metrics",
    {
      config: { access: "operator" },
      schema: {
        summary: "Prometheus metrics",
        tags: ["operators"],
        response: { 200: z.string(), 401: errorBodySchema, 403: errorBodySchema },
      },
    },
    async (_request, reply) => {
      const { contentType, text } = await metrics.scrape();
      return reply.header("content-type", contentType).serializer(String).send(text);
    },
  );
}
