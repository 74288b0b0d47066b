/**
 * Threads as a whole: list, stop, empty the home, purge, and start another with a copy of the workspace. None of these
 * creates a sandbox.
 */

import {
  branchReplySchema,
  branchRequestSchema,
  destroyReplySchema,
  explanationSchema,
  isSandlotError,
  parseThreadId,
  SandlotError,
  type ThreadSummary,
  threadDeleteQuerySchema,
  threadListQuerySchema,
  threadListSchema,
  threadParamsSchema,
  threadSummarySchema,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import type { FleetPeer } from "../../fleet.ts";
import { livingThreads } from "../../inspect/living.ts";
import { branchThroughSandboxes } from "../branch.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { ownerOf } from "../guards/caller.ts";
import { goneSignal, type ThreadKey, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";
import { explanationFor, plain } from "./sandboxes.ts";

export function threadRoutes(app: GatewayApp, { fleet, threads, workspaces, world, aioLinks }: GatewayContext): void {
  app.get(
    "/v1/threads",
    {
      config: { access: "owned" },
      schema: {
        summary: "The user's threads; everybody's for an operator who names no user",
        description:
          "A thread has a sandbox, files, or both. Files are known only on the host that has them: `unlisted` names the other hosts.",
        tags: ["threads"],
        querystring: threadListQuerySchema,
        response: { 200: threadListSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => {
      const { after, limit } = request.query;
      const user = ownerOf(request);
      const all = await livingThreads(fleet, world, user === null ? {} : { user });
      const rest = after === undefined ? all : all.filter((thread) => cursorOf(thread) > after);
      const threads = rest.slice(0, limit);
      const last = rest.length > limit ? threads.at(-1) : undefined;
      const next = last === undefined ? null : cursorOf(last);
      return { threads: threads.map(plainThread), next, unlisted: unlisted(await fleet.peers()) };
    },
  );

  app.get(
    "/v1/threads/:thread",
    {
      config: { access: "thread", purpose: "look at thread" },
      schema: {
        summary: "One thread: whether it has a sandbox, and in what state",
        tags: ["threads"],
        params: threadParamsSchema,
        response: { 200: threadSummarySchema, ...THREAD_ERRORS },
      },
    },
    async (request) => plainThread(await threads.existing(threadOf(request))),
  );

  app.get(
    "/v1/threads/:thread/explain",
    {
      config: { access: "thread", purpose: "explain" },
      schema: {
        summary: "Why the thread's sandbox is alive, or why its last one was stopped",
        tags: ["threads"],
        params: threadParamsSchema,
        response: { 200: explanationSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => {
      const key = threadOf(request);
      return explanationFor(key.user, await fleet.explain(key));
    },
  );

  app.post(
    "/v1/threads/:thread/stop",
    {
      config: { access: "thread", purpose: "stop thread" },
      schema: {
        summary: "End the thread's sandbox and keep its files; asking again is fine",
        tags: ["threads"],
        params: threadParamsSchema,
        querystring: threadDeleteQuerySchema,
        response: { 200: destroyReplySchema, 202: destroyReplySchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const outcome = await threads.destroy(threadOf(request), { force: request.query.force }, goneSignal(reply));
      return reply.code(outcome === "stopping" ? 202 : 200).send({ outcome });
    },
  );

  app.post(
    "/v1/threads/:thread/home/reset",
    {
      config: { access: "thread", purpose: "reset home" },
      schema: {
        summary: "End the thread's sandbox and empty its home; asking again is fine",
        description:
          "Installed programs, caches and dotfiles go, and with the sandbox its processes and temporary files. The workspace stays.",
        tags: ["threads"],
        params: threadParamsSchema,
        querystring: threadDeleteQuerySchema,
        response: { 200: destroyReplySchema, 202: destroyReplySchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const outcome = await threads.resetHome(threadOf(request), { force: request.query.force }, goneSignal(reply));
      return reply.code(outcome === "stopping" ? 202 : 200).send({ outcome });
    },
  );

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
      const key = threadOf(request);
      const outcome = await threads.destroy(key, { purge: true, force: request.query.force }, goneSignal(reply));
      // A deleted thread does not come back through a URL that was given away.
      await aioLinks.revoke(key);
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
      const to = { ...from, thread: parseThreadId(request.body.to) };
      if (to.thread === from.thread) throw new SandlotError("thread_exists", { thread: to.thread });
      if ((await threads.find(to)) !== null) throw new SandlotError("thread_exists", { thread: to.thread });
      const outcome = await branched(request.body, from, to, goneSignal(reply));
      const { fileCount, sizeBytes, skipped } = outcome;
      return reply.code(201).send({ thread: to.thread, fileCount, sizeBytes, skipped: [...skipped] });
    },
  );

  /** A fork, where the backend has checkpoints; otherwise a copy without links. */
  async function branched(
    { checkpoint, requestId }: { readonly checkpoint?: string | undefined; readonly requestId?: string | undefined },
    from: ThreadKey,
    to: ThreadKey,
    signal: AbortSignal,
  ) {
    try {
      const named = requestId === undefined ? {} : { requestId };
      const what = { signal, ...named, ...(checkpoint !== undefined && { checkpoint }) };
      const { skipped, ...counts } = await fleet.checkpoints.fork(from, to.thread, what);
      return { ...counts, skipped: skipped.map((path) => `${WORKSPACE_ROOT}/${path}`) };
    } catch (error) {
      if (checkpoint !== undefined || !isSandlotError(error, "capability_missing")) throw error;
    }
    const branch = workspaces.host?.branch?.bind(workspaces.host);
    const copied = await (branch === undefined ? branchThroughSandboxes(threads, from, to, signal) : branch(from, to));
    fleet.timeline.note(from, { kind: "fork", what: "to", facts: { thread: to.thread } });
    fleet.timeline.note(to, { kind: "fork", what: "from", facts: { thread: from.thread } });
    return copied;
  }
}

/** Sorted like the list: no name of a user or a thread contains the slash. */
function cursorOf({ user, thread }: ThreadSummary): string {
  return `${user}/${thread}`;
}

/** The engines that this gateway does not reach, with the gateways that do. */
function unlisted(peers: readonly FleetPeer[]) {
  const engines = new Set(peers.flatMap(({ otherEngines }) => otherEngines));
  return [...engines].sort().map((engine) => {
    const there = peers.filter(({ otherEngines }) => otherEngines.includes(engine));
    return { engine, gateways: [...new Set(there.flatMap(({ address }) => address ?? []))] };
  });
}

function plainThread({ user, thread, sandbox }: ThreadSummary) {
  return { user, thread, sandbox: sandbox && plain(sandbox) };
}
