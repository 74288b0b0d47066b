/** Files: listing, searching, moving. Content is `file-content.ts`. */

import {
  fileListingSchema,
  fileListQuerySchema,
  fileStatSchema,
  fileTextQuerySchema,
  fileWatchQuerySchema,
  globReplySchema,
  globRequestSchema,
  grepReplySchema,
  grepRequestSchema,
  mkdirRequestSchema,
  pathQuerySchema,
  renameRequestSchema,
  threadParamsSchema,
} from "@sandlot/contract";
import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { begun } from "../streams/bytes.ts";
import { SseStream } from "../streams/sse.ts";
import { THREAD_ERRORS } from "./answers.ts";

export function fileRoutes(app: GatewayApp, context: GatewayContext): void {
  const { threads } = context;

  app.get(
    "/v1/threads/:thread/files/list",
    {
      config: { access: "thread", purpose: "list files" },
      schema: {
        summary: "Entries below a directory",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: fileListQuerySchema,
        response: { 200: fileListingSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const { path, depth, maxResults } = request.query;
        const limit = maxResults === undefined ? {} : { maxResults };
        const { entries, truncated } = await sandbox.files.list(path, { depth, ...limit });
        return { entries: [...entries], truncated };
      }),
  );

  app.get(
    "/v1/threads/:thread/files/stat",
    {
      config: { access: "thread", purpose: "stat" },
      schema: {
        summary: "What is at a path",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: pathQuerySchema,
        response: { 200: fileStatSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) => threads.with(request, reply, (sandbox) => sandbox.files.stat(request.query.path)),
  );

  app.get(
    "/v1/threads/:thread/files/text",
    {
      config: { access: "thread", purpose: "read text" },
      schema: {
        summary: "The text of a file, or some of its lines",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: fileTextQuerySchema,
        response: { 200: z.string(), ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const { path, ...options } = request.query;
        const text = await sandbox.files.readText(path, given(options));
        return reply.header("content-type", "text/plain; charset=utf-8").serializer(String).send(text);
      }),
  );

  app.post(
    "/v1/threads/:thread/files/glob",
    {
      config: { access: "thread", purpose: "glob" },
      schema: {
        summary: "Paths that match a pattern",
        tags: ["files"],
        params: threadParamsSchema,
        body: globRequestSchema,
        response: { 200: globReplySchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const { path, pattern, ...options } = request.body;
        const { paths, truncated } = await sandbox.files.glob(path, pattern, given(options));
        return { paths: [...paths], truncated };
      }),
  );

  app.post(
    "/v1/threads/:thread/files/grep",
    {
      config: { access: "thread", purpose: "grep" },
      schema: {
        summary: "Lines that match a pattern",
        tags: ["files"],
        params: threadParamsSchema,
        body: grepRequestSchema,
        response: { 200: grepReplySchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const { path, pattern, ...options } = request.body;
        const { matches, ...told } = await sandbox.files.grep(path, pattern, given(options));
        return { matches: [...matches], ...told };
      }),
  );

  app.post(
    "/v1/threads/:thread/files/mkdir",
    {
      config: { access: "thread", purpose: "mkdir" },
      schema: {
        summary: "Make a directory and its parents",
        tags: ["files"],
        params: threadParamsSchema,
        body: mkdirRequestSchema,
        response: { 204: z.null(), ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        await sandbox.files.mkdir(request.body.path);
        return reply.code(204).send(null);
      }),
  );

  app.post(
    "/v1/threads/:thread/files/rename",
    {
      config: { access: "thread", purpose: "rename" },
      schema: {
        summary: "Move a file or a directory",
        tags: ["files"],
        params: threadParamsSchema,
        body: renameRequestSchema,
        response: { 204: z.null(), ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        await sandbox.files.rename(request.body.from, request.body.to);
        return reply.code(204).send(null);
      }),
  );

  app.get(
    "/v1/threads/:thread/files/watch",
    {
      config: { access: "thread", purpose: "watch files" },
      schema: {
        summary: "Changes below a directory, as events named by their type",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: fileWatchQuerySchema,
        response: {
          200: z.any().describe("Events `ready`, `created`, `modified`, `removed`, `overflow`."),
          ...THREAD_ERRORS,
        },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox, _lease, gone) => {
        const { path, recursive } = request.query;
        const signal = AbortSignal.any([gone, context.draining]);
        const changes = await begun(sandbox.files.watch(path, { recursive, signal }));
        await context.streams.run(request.caller?.user ?? null, () => {
          const stream = new SseStream(request, reply, context);
          return stream.fill(async () => {
            for await (const change of changes) await stream.send(change.type, change);
          });
        });
        return reply;
      }),
  );
}

/** Drops absent options: the type requires absence, not `undefined`. */
function given<T extends object>(options: T): { [Key in keyof T]-?: Exclude<T[Key], undefined> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Key in keyof T]-?: Exclude<T[Key], undefined> };
}
