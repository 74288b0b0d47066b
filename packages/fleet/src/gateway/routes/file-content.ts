/**
 * The bytes of a file: streamed both ways, in ranges, with preconditions. `ETag` is the file's version.
 *
 * Bytes from a sandbox are never shown as a page of this origin: always `attachment`, never sniffed.
 */

import type { Readable } from "node:stream";
import {
  type FileStat,
  fileDeleteQuerySchema,
  fileStatSchema,
  fileWriteQuerySchema,
  httpTime,
  pathQuerySchema,
  SandlotError,
  threadParamsSchema,
  type WriteOptions,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { checkIfMatch, etagOf, isNotModified, parseRange, writeCondition } from "../conditions.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { limited, streamed } from "../streams/bytes.ts";
import { goneSignal, purposeOf, threadOf } from "../thread-use.ts";
import type { OpenFile } from "../workspace-access.ts";
import { THREAD_ERRORS } from "./answers.ts";

const ROUTE = "/v1/threads/:thread/files/content";
const ERRORS = { ...THREAD_ERRORS, 412: THREAD_ERRORS[409], 416: THREAD_ERRORS[409] } as const;

const reading = { params: threadParamsSchema, querystring: pathQuerySchema } as const;

/** In a separate scope: a body of any type, JSON included, is bytes here. */
export function fileContentRoutes(app: GatewayApp, context: GatewayContext): void {
  const { threads, settings, world } = context;
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
  const intake = (request: FastifyRequest) => {
    const announced = Number(request.headers["content-length"] ?? 0);
    const { fileMaxBytes: maxBytes, bodyStallMs: stallMs } = settings;
    if (announced > maxBytes) throw new SandlotError("payload_too_large", { what: "The file", maxBytes });
    return limited((request.body ?? request.raw) as Readable, {
      ...{ what: "The file", maxBytes, stallMs, world },
      gives: true,
    });
  };

  app.head(ROUTE, { config: { access: "thread", purpose: "read file" }, schema: reading }, (request, reply) =>
    sendFile(context, request, reply, request.query.path),
  );

  app.get(
    ROUTE,
    {
      config: { access: "thread", purpose: "read file" },
      exposeHeadRoute: false,
      schema: {
        summary: "The bytes of a file, or of a range of it",
        tags: ["files"],
        ...reading,
        response: { 200: z.any().describe("Bytes."), 206: z.any().describe("A range of them."), ...ERRORS },
      },
    },
    (request, reply) => sendFile(context, request, reply, request.query.path),
  );

  app.put(
    ROUTE,
    {
      config: { access: "thread", purpose: "write file", streamsBody: true },
      bodyLimit: settings.fileMaxBytes,
      schema: {
        summary: "Write a file, atomically",
        description: "`If-Match` writes over that version only; `If-None-Match: *` only where there is none.",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: fileWriteQuerySchema,
        response: { 200: fileStatSchema, ...ERRORS },
      },
    },
    async (request, reply) => {
      const { path, mode } = request.query;
      const options: WriteOptions = {
        ...writeCondition(request.headers, path),
        ...(mode === undefined ? {} : { mode: Number.parseInt(mode, 8) }),
      };
      const content = intake(request);
      const here = await context.workspaces.host?.writeFile?.(threadOf(request), path, content, options);
      if (here !== undefined && here !== null) return reply.header("etag", etagOf(here)).send(here);
      return threads.with(request, reply, async (sandbox) => {
        await sandbox.files.upload(path, content, options);
        const stat = await sandbox.files.stat(path);
        return reply.header("etag", etagOf(stat)).send(stat);
      });
    },
  );

  app.post(
    "/v1/threads/:thread/files/append",
    {
      config: { access: "thread", purpose: "append to file", streamsBody: true },
      bodyLimit: settings.fileMaxBytes,
      schema: {
        summary: "Append to a file",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: pathQuerySchema,
        response: { 200: fileStatSchema, ...ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const pieces: Uint8Array[] = [];
        for await (const piece of intake(request)) pieces.push(piece);
        await sandbox.files.append(request.query.path, Buffer.concat(pieces));
        const stat = await sandbox.files.stat(request.query.path);
        return reply.header("etag", etagOf(stat)).send(stat);
      }),
  );

  app.delete(
    ROUTE,
    {
      config: { access: "thread", purpose: "remove file" },
      schema: {
        summary: "Remove a file, an empty directory or a tree",
        tags: ["files"],
        params: threadParamsSchema,
        querystring: fileDeleteQuerySchema,
        response: { 204: z.null(), ...ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const { path, recursive } = request.query;
        if (request.headers["if-match"] !== undefined) checkIfMatch(request.headers, await sandbox.files.stat(path));
        await sandbox.files.remove(path, { recursive });
        return reply.code(204).send(null);
      }),
  );
}

/** Responds with a file: 200, 206, 304, 412 or 416. Its resources are released with the last byte. */
async function sendFile(context: GatewayContext, request: FastifyRequest, reply: FastifyReply, path: string) {
  const { stat, stream, close } = await openFile(context, request, reply, path);
  let handedOver = false;
  try {
    checkIfMatch(request.headers, stat);
    fileHeaders(reply, stat);
    if (isNotModified(request.headers, stat)) return reply.code(304).send();
    if (stat.kind === "symlink") {
      // The size of a link's target is unknown, so it is sent whole, regardless of the range.
      if (request.method === "HEAD") return reply.removeHeader("accept-ranges").send();
      handedOver = true;
      return reply.removeHeader("accept-ranges").send(await streamed(stream(), close));
    }
    const range = parseRange(request.headers, stat);
    const { offset, length } = range ?? { offset: 0, length: stat.sizeBytes };
    reply.header("content-length", length);
    if (range !== null) {
      reply.code(206).header("content-range", `bytes ${offset}-${offset + length - 1}/${stat.sizeBytes}`);
    }
    if (request.method === "HEAD") return reply.send();
    if (length === 0) return reply.send(Buffer.alloc(0));
    handedOver = true;
    return reply.send(await streamed(stream({ offset, length }), close));
  } finally {
    if (!handedOver) await close();
  }
}

/** From this host's disk where possible; otherwise from the sandbox, under a lease that ends with it. */
async function openFile(
  { threads, workspaces }: GatewayContext,
  request: FastifyRequest,
  reply: FastifyReply,
  path: string,
): Promise<OpenFile> {
  const key = threadOf(request);
  const here = await workspaces.host?.openFile?.(key, path);
  if (here !== undefined && here !== null) return here;
  const lease = await threads.acquire(key, purposeOf(request), goneSignal(reply));
  try {
    const { files } = lease.sandbox;
    const stat = await fileAt(() => files.stat(path), path);
    return { stat, stream: (range) => files.download(path, range), close: () => threads.release(lease) };
  } catch (error) {
    await threads.release(lease);
    throw error;
  }
}

async function fileAt(stat: () => Promise<FileStat>, path: string): Promise<FileStat> {
  const found = await stat();
  if (found.kind === "directory") throw new SandlotError("is_a_directory", { path });
  return found;
}

function fileHeaders(reply: FastifyReply, stat: FileStat): void {
  reply
    .header("content-type", "application/octet-stream")
    .header("content-disposition", "attachment")
    .header("accept-ranges", "bytes")
    .header("etag", etagOf(stat));
  const modified = httpTime(stat.modifiedAt);
  if (modified !== null) reply.header("last-modified", modified);
}
