/** Threads as a whole: ending one with everything it has, and beginning another with a copy of its workspace. */

import {
  branchReplySchema,
  branchRequestSchema,
  destroyReplySchema,
  parseThreadId,
  SandlotError,
  threadDeleteQuerySchema,
  threadParamsSchema,
} from "@sandlot/contract";
import { branchThroughSandboxes } from "../branch.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { goneSignal, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

export function threadRoutes(app: GatewayApp, { fleet, threads, workspaces }: GatewayContext): void {
  app.delete(
    "/v1/threads/:thread",
    {
      config: { access: "thread", purpose: "delete thread" },
      schema: {
        summary: "End the thread's sandbox and remove its workspace; asking again is fine",
        tags: ["threads"],
        params: threadParamsSchema,
        querystring: threadDeleteQuerySchema,
        response: { 200: destroyReplySchema, 202: destroyReplySchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const outcome = await fleet.destroy(threadOf(request), { purge: true, force: request.query.force });
      return reply.code(outcome === "stopping" ? 202 : 200).send({ outcome });
    },
  );

  app.post(
    "/v1/threads/:thread/branch",
    {
      config: { access: "thread", purpose: "branch" },
      schema: {
        summary: "Copy the thread's workspace to a new thread",
        tags: ["threads"],
        params: threadParamsSchema,
        body: branchRequestSchema,
        response: { 201: branchReplySchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const from = threadOf(request);
      const to = { user: from.user, thread: parseThreadId(request.body.to) };
      if (to.thread === from.thread) throw new SandlotError("thread_exists", { thread: to.thread });
      if ((await threads.find(to)) !== null) throw new SandlotError("thread_exists", { thread: to.thread });
      const branch = workspaces.host?.branch?.bind(workspaces.host);
      const outcome =
        branch === undefined
          ? await branchThroughSandboxes(fleet, threads, from, to, goneSignal(reply))
          : await branch(from, to);
      const { fileCount, sizeBytes, skipped } = outcome;
      return reply.code(201).send({ thread: to.thread, fileCount, sizeBytes, skipped: [...skipped] });
    },
  );
}
