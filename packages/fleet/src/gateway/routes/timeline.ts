/**
 * What happened to a thread, and what its sandbox uses. Nothing here takes a lease: looking neither makes a sandbox nor
 * keeps one alive.
 */

import {
  SandlotError,
  threadParamsSchema,
  type timelineEntrySchema,
  timelineExportQuerySchema,
  timelineFollowQuerySchema,
  timelinePageSchema,
  timelineQuerySchema,
} from "@sandlot/contract";
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import type { TimelineFilter, TimelineRead } from "../../fleet.ts";
import { sleep } from "../../world/waiting.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { SseStream } from "../streams/sse.ts";
import { checkThread, type ThreadKey, threadOf } from "../thread-use.ts";
import { timelineFile } from "../timeline/timeline-html.ts";
import { THREAD_ERRORS } from "./answers.ts";

const T = "/v1/threads/:thread";
/** All of a log: no entry is shorter than a fortieth of this. */
const EXPORT_MAX = 50_000;
const USAGE_EVERY_MS = 2_000;
/** A daemon that does not answer has no figures. */
const USAGE_TIMEOUT_MS = 10_000;

export function timelineRoutes(app: GatewayApp, context: GatewayContext): void {
  pageRoute(app, context);
  followRoute(app, context);
  exportRoute(app, context);
  usageRoute(app, context);
}

function pageRoute(app: GatewayApp, context: GatewayContext): void {
  app.get(
    `${T}/timeline`,
    {
      config: { access: "thread", purpose: "read timeline" },
      schema: {
        summary: "What happened to the thread: leases, commands, files changed, crashes and more",
        description:
          "Without `from` the newest entries, the oldest of them first. An offset belongs to one entry for ever. The log " +
          "is bounded: `isWhole` is false once its oldest entries were dropped.",
        tags: ["timeline"],
        params: threadParamsSchema,
        querystring: timelineQuerySchema,
        response: { 200: timelinePageSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => {
      const { from, before, limit, ...filter } = request.query;
      const range = { ...(from !== undefined && { from }), ...(before !== undefined && { before }), limit };
      return plain(await read(context, threadOf(request), { ...filterOf(filter), ...range }));
    },
  );
}

function followRoute(app: GatewayApp, context: GatewayContext): void {
  const { fleet, streams, draining } = context;
  app.get(
    `${T}/timeline/stream`,
    {
      config: { access: "thread", purpose: "follow timeline" },
      schema: {
        summary: "The thread's timeline as it grows",
        description:
          "Events: `entry`, and `gap` where entries were dropped before they were read. `Last-Event-ID` goes on after " +
          "the entry with that id, at any gateway.",
        tags: ["timeline"],
        params: threadParamsSchema,
        querystring: timelineFollowQuerySchema,
        response: { 200: z.any().describe("Events."), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const key = threadOf(request);
      const { from, ...filter } = request.query;
      const start = resumed(request) ?? from;
      await streams.run(key.user, async () => {
        // Refusals come before the head of the response.
        await read(context, key, { limit: 1 });
        const stream = new SseStream(request, reply, context);
        await stream.fill(async () => {
          const signal = AbortSignal.any([stream.closed, draining]);
          const options = { ...filterOf(filter), ...(start !== undefined && { from: start }), signal };
          for await (const item of fleet.timeline.follow(key, options)) {
            if (item.kind === "gap") await stream.send("gap", {});
            else await stream.send("entry", item.entry, String(item.entry.offset));
          }
        });
      });
      return reply;
    },
  );
}

function exportRoute(app: GatewayApp, context: GatewayContext): void {
  app.get(
    `${T}/timeline/export`,
    {
      config: { access: "thread", purpose: "export timeline" },
      schema: {
        summary: "The whole timeline as one file: a page without scripts, or JSON",
        tags: ["timeline"],
        params: threadParamsSchema,
        querystring: timelineExportQuerySchema,
        response: { 200: z.any().describe("The file."), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const key = threadOf(request);
      const { format, ...filter } = request.query;
      const page = await read(context, key, { ...filterOf(filter), limit: EXPORT_MAX });
      const exportedAt = context.world.wallMs();
      const about = { user: key.user, thread: key.thread, exportedAt };
      reply.header("content-disposition", `attachment; filename="timeline-${key.thread}.${format}"`);
      const type = format === "json" ? "application/json" : "text/html";
      // Where a browser shows it instead of keeping it, it is in no origin, and without scripts.
      reply.header("content-security-policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'");
      reply.header("content-type", `${type}; charset=utf-8`);
      return reply.serializer(String).send(await timelineFile(format, page, about, context.world));
    },
  );
}

function usageRoute(app: GatewayApp, context: GatewayContext): void {
  const { fleet, streams, draining, world, threads } = context;
  app.get(
    `${T}/usage/stream`,
    {
      config: { access: "thread", purpose: "follow usage" },
      schema: {
        summary: "What the thread's sandbox uses, every two seconds, without holding it",
        description:
          "Events `usage`: processor, memory, disk, processes and network of a sandbox that somebody holds; `usage` is " +
          "null while nobody does, because looking would wake it.",
        tags: ["inside"],
        params: threadParamsSchema,
        response: { 200: z.any().describe("Events."), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const key = threadOf(request);
      await streams.run(key.user, async () => {
        await checkThread(fleet, key);
        await threads.existing(key);
        const stream = new SseStream(request, reply, context);
        await stream.fill(async () => {
          const signal = AbortSignal.any([stream.closed, draining]);
          while (!signal.aborted) {
            const late = AbortSignal.any([signal, AbortSignal.timeout(USAGE_TIMEOUT_MS)]);
            const sample = await fleet.usage(key, { signal: late }).catch((error: unknown) => {
              if (signal.aborted || isFinal(error)) throw error;
              return { at: world.wallMs(), state: "leased", usage: null };
            });
            await stream.send("usage", sample);
            await sleep(world, USAGE_EVERY_MS, signal, { background: true }).catch(() => undefined);
          }
        });
      });
      return reply;
    },
  );
}

async function read({ fleet, threads }: GatewayContext, key: ThreadKey, query: TimelineRead) {
  await checkThread(fleet, key);
  const page = await fleet.timeline.read(key, query);
  if (page.end === 0) await threads.existing(key);
  return page;
}

/** The thread is at another gateway: its reader has to go there. */
function isFinal(error: unknown): boolean {
  return error instanceof SandlotError && (error.code === "thread_elsewhere" || error.code === "engine_unreachable");
}

function resumed({ headers }: FastifyRequest): number | undefined {
  const last = headers["last-event-id"];
  return typeof last === "string" && /^\d{1,16}$/.test(last) ? Number(last) + 1 : undefined;
}

function filterOf({
  kind,
  since,
  until,
}: {
  readonly kind?: TimelineFilter["kinds"] | undefined;
  readonly since?: number | undefined;
  readonly until?: number | undefined;
}): TimelineFilter {
  return {
    ...(kind !== undefined && { kinds: kind }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  };
}

type Page = Awaited<ReturnType<GatewayContext["fleet"]["timeline"]["read"]>>;

function plain({ entries, ...rest }: Page): z.infer<typeof timelinePageSchema> {
  return { ...rest, entries: entries.map((entry) => ({ ...entry }) as z.infer<typeof timelineEntrySchema>) };
}
