/** For operators: every sandbox, why it is there, what happens, who did what. */

import {
  auditQuerySchema,
  auditReplySchema,
  destroyReplySchema,
  explanationSchema,
  type SandboxSummary,
  SandlotError,
  sandboxIdSchema,
  sandboxListSchema,
  sandboxSummarySchema,
  threadDeleteQuerySchema,
} from "@sandlot/contract";
import { z } from "zod";
import { livingSandboxes } from "../../observe/living.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { SseStream } from "../streams/sse.ts";
import { OPERATOR_ERRORS } from "./answers.ts";

const sandboxParamsSchema = z.strictObject({ id: sandboxIdSchema });

export function operatorRoutes(app: GatewayApp, context: GatewayContext): void {
  const { fleet, world, audit, auditFleet, events, draining } = context;

  app.get(
    "/v1/sandboxes",
    {
      config: { access: "operator" },
      schema: {
        summary: "All sandboxes",
        tags: ["operators"],
        response: { 200: sandboxListSchema, ...OPERATOR_ERRORS },
      },
    },
    async () => ({ sandboxes: (await livingSandboxes(fleet, world)).map(plain) }),
  );

  app.get(
    "/v1/sandboxes/:id",
    {
      config: { access: "operator" },
      schema: {
        summary: "One sandbox",
        tags: ["operators"],
        params: sandboxParamsSchema,
        response: { 200: sandboxSummarySchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => plain(sandboxById(await livingSandboxes(fleet, world), request.params.id)),
  );

  app.get(
    "/v1/sandboxes/:id/explain",
    {
      config: { access: "operator" },
      schema: {
        summary: "Why it is alive, or why it was stopped",
        tags: ["operators"],
        params: sandboxParamsSchema,
        response: { 200: explanationSchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => {
      const { holders, history, ...rest } = await fleet.explain(request.params.id);
      return { ...rest, holders: [...holders], history: history.map((event) => ({ ...event })) };
    },
  );

  app.delete(
    "/v1/sandboxes/:id",
    {
      config: { access: "operator" },
      schema: {
        summary: "End a sandbox; the workspace of its thread stays",
        tags: ["operators"],
        params: sandboxParamsSchema,
        querystring: threadDeleteQuerySchema,
        response: { 200: destroyReplySchema, 202: destroyReplySchema, ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      const { sandboxId, user, thread } = sandboxById(await fleet.list(), request.params.id);
      const outcome =
        thread === null
          ? await fleet.destroyBlank(sandboxId)
          : await fleet.destroy(user === null ? { thread } : { user, thread }, { force: request.query.force });
      return reply.code(outcome === "stopping" ? 202 : 200).send({ outcome });
    },
  );

  app.get(
    "/v1/events",
    {
      config: { access: "operator" },
      schema: {
        summary: "What happens in the fleet, as events named by their type",
        description: "`Last-Event-ID` (or `after`) goes on where a reader was. `gap`: some were missed.",
        tags: ["operators"],
        querystring: z.strictObject({ after: z.string().max(64).optional() }),
        response: { 200: z.any().describe("Events."), ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      const header = request.headers["last-event-id"];
      const position = events.position(typeof header === "string" ? header : request.query.after);
      await context.streams.run(null, () => {
        const stream = new SseStream(request, reply, context);
        return stream.fill(async () => {
          if (position.missed) await stream.send("gap", {});
          const signal = AbortSignal.any([stream.closed, draining]);
          for await (const next of events.from(position.next, signal)) {
            if (next === null) await stream.send("gap", {});
            else await stream.sendEncoded(next.type, next.json, next.id);
          }
        });
      });
      return reply;
    },
  );

  app.get(
    "/v1/audit",
    {
      config: { access: "operator" },
      schema: {
        summary: "Engine against store, and who did what",
        tags: ["operators"],
        querystring: auditQuerySchema,
        response: { 200: auditReplySchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => {
      const findings = auditFleet === null ? null : await auditFleet();
      return {
        consistent: findings === null ? null : findings.length === 0,
        findings: [...(findings ?? [])],
        entries: audit.newest(request.query),
      };
    },
  );
}

function sandboxById(sandboxes: readonly SandboxSummary[], id: string): SandboxSummary {
  const found = sandboxes.find(({ sandboxId }) => sandboxId === id);
  if (found === undefined) throw new SandlotError("sandbox_not_found", { id });
  return found;
}

function plain(summary: SandboxSummary) {
  return { ...summary, holders: [...summary.holders] };
}
