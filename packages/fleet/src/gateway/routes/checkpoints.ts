/**
 * Checkpoints of a thread: list, take, compare, bring back, export; and a new thread from an archive. A key of a user
 * reaches its own threads only.
 *
 * What takes long reports its progress as `checkpoint-progress` events with the request's id.
 */

import type { Readable } from "node:stream";
import {
  type Checkpoint,
  type CheckpointDiff,
  checkpointDiffSchema,
  checkpointListSchema,
  checkpointParamsSchema,
  checkpointRequestSchema,
  checkpointSchema,
  diffRequestSchema,
  restoredCheckpointSchema,
  restoreRequestSchema,
  seededThreadSchema,
  takenCheckpointSchema,
  threadParamsSchema,
  undoRequestSchema,
  verifiedCheckpointsSchema,
  verifyRequestSchema,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import type { RestoreOptions } from "../../fleet.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { limited, streamed } from "../streams/bytes.ts";
import { goneSignal, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

const T = "/v1/threads/:thread";

export function checkpointRoutes(app: GatewayApp, context: GatewayContext): void {
  readingRoutes(app, context);
  restoringRoutes(app, context);
  void app.register(async (scope) => seedRoute(scope as unknown as GatewayApp, context));
}

function readingRoutes(app: GatewayApp, { fleet }: GatewayContext): void {
  const { checkpoints } = fleet;
  app.get(
    `${T}/checkpoints`,
    {
      config: { access: "thread", purpose: "list checkpoints" },
      schema: {
        summary: "Earlier states of the thread's workspace and home",
        tags: ["checkpoints"],
        params: threadParamsSchema,
        response: { 200: checkpointListSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => ({ checkpoints: (await checkpoints.list(threadOf(request))).map(plain) }),
  );

  app.post(
    `${T}/checkpoints`,
    {
      config: { access: "thread", purpose: "take checkpoint" },
      schema: {
        summary: "Keep the present state; the sandbox goes on",
        description: "Memory and processes are not kept. Nothing is written where nothing has changed.",
        tags: ["checkpoints"],
        params: threadParamsSchema,
        body: checkpointRequestSchema.optional(),
        response: { 200: takenCheckpointSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const taken = await checkpoints.take(threadOf(request), {
        ...given(request.body ?? {}),
        signal: goneSignal(reply),
      });
      return { ...taken, checkpoint: plain(taken.checkpoint) };
    },
  );

  app.get(
    `${T}/checkpoints/:checkpoint`,
    {
      config: { access: "thread", purpose: "look at checkpoint" },
      schema: {
        summary: "One checkpoint, by its id, the beginning of it, or its label",
        tags: ["checkpoints"],
        params: checkpointParamsSchema,
        response: { 200: checkpointSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => plain(await checkpoints.find(threadOf(request), request.params.checkpoint)),
  );

  app.delete(
    `${T}/checkpoints/:checkpoint`,
    {
      config: { access: "thread", purpose: "remove checkpoint" },
      schema: {
        summary: "Remove a checkpoint; its bytes go with a later collection",
        tags: ["checkpoints"],
        params: checkpointParamsSchema,
        response: { 204: z.null().describe("It is gone."), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      await checkpoints.remove(threadOf(request), request.params.checkpoint);
      return reply.code(204).send(null);
    },
  );

  app.get(
    `${T}/checkpoints/:checkpoint/archive`,
    {
      config: { access: "thread", purpose: "export checkpoint" },
      schema: {
        summary: "A checkpoint's files as a tar archive",
        tags: ["checkpoints"],
        params: checkpointParamsSchema,
        response: { 200: z.any().describe("A tar archive."), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const key = threadOf(request);
      const { id } = await checkpoints.find(key, request.params.checkpoint);
      const content = checkpoints.export(key, id, { signal: goneSignal(reply) });
      // Generators of clients know no other type of bytes.
      reply.header("content-type", "application/octet-stream");
      reply.header("content-disposition", `attachment; filename="${key.thread}-${id}.tar"`);
      return reply.send(await streamed(content, async () => undefined));
    },
  );

  app.post(
    `${T}/checkpoints/verify`,
    {
      config: { access: "thread", purpose: "verify checkpoints" },
      schema: {
        summary: "Read all that checkpoints have, and name what is damaged",
        tags: ["checkpoints"],
        params: threadParamsSchema,
        body: verifyRequestSchema.optional(),
        response: { 200: verifiedCheckpointsSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const options = { ...given(request.body ?? {}), signal: goneSignal(reply) };
      const { checked, damaged } = await checkpoints.verify(threadOf(request), options);
      return { checked, damaged: [...damaged] };
    },
  );

  app.post(
    `${T}/diff`,
    {
      config: { access: "thread", purpose: "diff" },
      schema: {
        summary: "What changed between two checkpoints, or since one",
        tags: ["checkpoints"],
        params: threadParamsSchema,
        body: diffRequestSchema.optional(),
        response: { 200: checkpointDiffSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) =>
      plainDiff(await checkpoints.diff(threadOf(request), { ...given(request.body ?? {}), signal: goneSignal(reply) })),
  );
}

function restoringRoutes(app: GatewayApp, { fleet, threads }: GatewayContext): void {
  const { checkpoints } = fleet;
  app.post(
    `${T}/restore`,
    {
      config: { access: "thread", purpose: "restore" },
      schema: {
        summary: "Bring back a checkpoint, whole or some paths",
        description:
          "Ends the thread's sandbox; the present is kept as a checkpoint. The next use of the thread gets a new sandbox.",
        tags: ["checkpoints"],
        params: threadParamsSchema,
        body: restoreRequestSchema,
        response: { 200: restoredCheckpointSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const { checkpoint, ...options } = request.body;
      return restored(request, reply, options, (key, all) => checkpoints.restore(key, checkpoint, all));
    },
  );

  for (const direction of ["undo", "redo"] as const)
    app.post(
      `${T}/${direction}`,
      {
        config: { access: "thread", purpose: direction },
        schema: {
          summary:
            direction === "undo"
              ? "Go back to the newest state that differs from the present; again, to the one before"
              : "Return from the newest undo",
          tags: ["checkpoints"],
          params: threadParamsSchema,
          body: undoRequestSchema.optional(),
          response: { 200: restoredCheckpointSchema, ...THREAD_ERRORS },
        },
      },
      async (request, reply) =>
        restored(request, reply, request.body ?? {}, (key, options) => checkpoints[direction](key, options)),
    );

  async function restored(
    request: FastifyRequest,
    reply: FastifyReply,
    options: Pick<z.output<typeof restoreRequestSchema>, "force" | "requestId" | "timeoutMs" | "paths">,
    restore: (
      key: ReturnType<typeof threadOf>,
      options: RestoreOptions,
    ) => Promise<{ readonly checkpoint: Checkpoint; readonly safety: Checkpoint }>,
  ) {
    const key = threadOf(request);
    const signal = goneSignal(reply);
    const all: RestoreOptions = { ...given(options), signal };
    const { checkpoint, safety } = await threads.ending(key, () => restore(key, all), signal);
    return { checkpoint: plain(checkpoint), safety: plain(safety) };
  }
}

/** The body is the archive itself. */
function seedRoute(app: GatewayApp, { fleet, settings, world }: GatewayContext): void {
  const { bodyStallMs: stallMs } = settings;
  const maxBytes = settings.uploads.maxTotalBytes;
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
  app.put(
    `${T}/archive`,
    {
      config: { access: "thread", purpose: "seed thread", streamsBody: true },
      bodyLimit: maxBytes,
      schema: {
        summary: "Begin a thread with the files of a tar archive, plain or gzip",
        tags: ["checkpoints"],
        params: threadParamsSchema,
        response: { 201: seededThreadSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const key = threadOf(request);
      const body = (request.body ?? request.raw) as Readable;
      const archive = limited(body, { what: "The archive", maxBytes, stallMs, world });
      const seeded = await fleet.checkpoints.seed(key, { archive }, { signal: goneSignal(reply) });
      const { fileCount, sizeBytes, skipped } = seeded;
      return reply.code(201).send({ thread: key.thread, fileCount, sizeBytes, skipped: [...skipped] });
    },
  );
}

/** Without the fields that were not sent. */
function given<T extends object>(body: T): { [Key in keyof T]: Exclude<T[Key], undefined> } {
  const entries = Object.entries(body).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Key in keyof T]: Exclude<T[Key], undefined> };
}

function plain({ torn, leftOut, ...rest }: Checkpoint) {
  const sample = ({ count, paths }: Checkpoint["torn"]) => ({ count, paths: [...paths] });
  return { ...rest, torn: sample(torn), leftOut: sample(leftOut) };
}

function plainDiff({ changes, ...rest }: CheckpointDiff) {
  return { ...rest, changes: changes.map((change) => ({ ...change })) };
}
