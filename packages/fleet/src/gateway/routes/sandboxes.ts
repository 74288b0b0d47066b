/**
 * Sandboxes by their id: a user sees and ends those of own threads, an operator all. Another user's sandbox gets the
 * same response as a missing one.
 */

import {
  destroyReplySchema,
  explanationSchema,
  parseThreadId,
  type SandboxSummary,
  SandlotError,
  sandboxIdSchema,
  sandboxListSchema,
  sandboxSummarySchema,
  threadDeleteQuerySchema,
} from "@sandlot/contract";
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import { parseUser } from "../../config/call-options.ts";
import type { Explanation } from "../../fleet.ts";
import { livingSandboxes } from "../../inspect/living.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { isVisibleTo } from "../events/event-log.ts";
import { keyIdOf, ownerOf } from "../guards/caller.ts";
import type { ThreadKey } from "../thread-key.ts";
import { goneSignal } from "../thread-use.ts";
import { OPERATOR_ERRORS } from "./answers.ts";

const sandboxParamsSchema = z.strictObject({ id: sandboxIdSchema });

export function sandboxRoutes(app: GatewayApp, { fleet, threads, world }: GatewayContext): void {
  app.get(
    "/v1/sandboxes",
    {
      config: { access: "owned" },
      schema: {
        summary: "The user's sandboxes; all of them for an operator who names no user",
        tags: ["sandboxes"],
        response: { 200: sandboxListSchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => ({ sandboxes: owned(request, await livingSandboxes(fleet, world)).map(plain) }),
  );

  app.get(
    "/v1/sandboxes/:id",
    {
      config: { access: "owned" },
      schema: {
        summary: "One sandbox",
        tags: ["sandboxes"],
        params: sandboxParamsSchema,
        response: { 200: sandboxSummarySchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => plain(byId(owned(request, await livingSandboxes(fleet, world)), request.params.id)),
  );

  app.get(
    "/v1/sandboxes/:id/explain",
    {
      config: { access: "owned" },
      schema: {
        summary: "Why it is alive, or why it was stopped; the beginning of an id will do",
        tags: ["sandboxes"],
        params: sandboxParamsSchema,
        response: { 200: explanationSchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => {
      const user = ownerOf(request);
      return explanationFor(user, await fleet.explain(request.params.id, user === null ? {} : { user }));
    },
  );

  app.post(
    "/v1/sandboxes/:id/confirm-dead",
    {
      config: { access: "operator" },
      schema: {
        summary: "Say that nothing of a sandbox runs any more, where its engine cannot tell; its machine must be off",
        tags: ["operators"],
        params: sandboxParamsSchema,
        response: { 204: z.null(), ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      await fleet.confirmDead(request.params.id, `key ${keyIdOf(request)}`, { signal: goneSignal(reply) });
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/v1/sandboxes/:id",
    {
      config: { access: "owned" },
      schema: {
        summary: "End a sandbox; the workspace of its thread stays",
        tags: ["sandboxes"],
        params: sandboxParamsSchema,
        querystring: threadDeleteQuerySchema,
        response: { 200: destroyReplySchema, 202: destroyReplySchema, ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      const { sandboxId, user, thread } = byId(owned(request, await fleet.list()), request.params.id);
      const outcome =
        thread === null
          ? await fleet.destroyBlank(sandboxId)
          : await threads.destroy(keyOf(user, thread), { force: request.query.force }, goneSignal(reply));
      return reply.code(outcome === "stopping" ? 202 : 200).send({ outcome });
    },
  );
}

function keyOf(user: string | null, thread: string): ThreadKey {
  return { user: parseUser(user ?? undefined), thread: parseThreadId(thread) };
}

/** An explanation as sent, with the history that this user may see. */
export function explanationFor(user: string | null, { holders, history, ...rest }: Explanation) {
  const seen = history.filter((event) => isVisibleTo(user, event)).map((event) => ({ ...event }));
  return { ...rest, holders: [...holders], history: seen };
}

function owned(request: FastifyRequest, sandboxes: readonly SandboxSummary[]): readonly SandboxSummary[] {
  const user = ownerOf(request);
  return user === null ? sandboxes : sandboxes.filter((sandbox) => sandbox.user === user);
}

function byId(sandboxes: readonly SandboxSummary[], id: string): SandboxSummary {
  const found = sandboxes.find(({ sandboxId }) => sandboxId === id);
  if (found === undefined) throw new SandlotError("sandbox_not_found", { id });
  return found;
}

export function plain(summary: SandboxSummary) {
  return { ...summary, holders: [...summary.holders] };
}
