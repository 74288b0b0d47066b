/**
 * Uploads, below two prefixes: ours (`/v1/…`) and DeerFlow's (`/api/…`), whose web client then works unchanged. Both do
 * the same; they differ in URLs, in spelling (`uploads/shapes.ts`) and in error texts.
 */

import multipart from "@fastify/multipart";
import {
  SandlotError,
  threadIdSchema,
  threadParamsSchema,
  type UploadedFile,
  uploadDeleteReplySchema,
  uploadQuerySchema,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { DeerFlowDetail } from "../errors.ts";
import { goneSignal, purposeOf, threadOf } from "../thread-use.ts";
import { extensionOf, safeName } from "../uploads/names.ts";
import { listUploads, receiveUploads, UPLOADS } from "../uploads/receive.ts";
import { DEERFLOW_SHAPES, OUR_SHAPES } from "../uploads/shapes.ts";
import { THREAD_ERRORS } from "./answers.ts";

export interface RouteFamily {
  readonly prefix: "/v1/threads" | "/api/threads";
  readonly deerflow: boolean;
}

export const OWN_ROUTES: RouteFamily = { prefix: "/v1/threads", deerflow: false };
export const DEERFLOW_ROUTES: RouteFamily = { prefix: "/api/threads", deerflow: true };

const fileParamsSchema = z.strictObject({ thread: threadIdSchema, filename: z.string().min(1).max(1_024) });
const ERRORS = { ...THREAD_ERRORS, 400: THREAD_ERRORS[422] } as const;

export async function uploadRoutes(
  app: GatewayApp,
  context: GatewayContext,
  { prefix, deerflow }: RouteFamily,
): Promise<void> {
  const { settings, workspaces } = context;
  const { maxFiles, maxFileBytes, maxTotalBytes, convertDocuments } = settings.uploads;
  const shapes = deerflow ? DEERFLOW_SHAPES : OUR_SHAPES;
  const limits = shapes.limits.of({ maxFiles, maxFileBytes, maxTotalBytes });
  const tags = [deerflow ? "deerflow" : "uploads"];
  const config = (purpose: string) => ({ access: "thread" as const, purpose, deerflow });
  // Each file's size is checked while it is staged; these limits apply earlier.
  await app.register(multipart, {
    throwFileSizeLimit: false,
    // One place validates file names, so they have to arrive as sent.
    preservePath: true,
    limits: { fileSize: maxFileBytes + 1, fields: 20, fieldSize: 16_384, parts: maxFiles + 21, headerPairs: 100 },
  });

  app.post(
    `${prefix}/:thread/uploads`,
    {
      config: { ...config("upload"), streamsBody: true },
      bodyLimit: maxTotalBytes + 1024 * 1024,
      schema: {
        summary: "Upload files (multipart/form-data, field `files`)",
        tags,
        consumes: ["multipart/form-data"],
        params: threadParamsSchema,
        querystring: deerflow ? z.object(uploadQuerySchema.shape) : uploadQuerySchema,
        response: { 200: shapes.reply.schema, ...ERRORS },
      },
    },
    async (request, reply) => {
      const describe = describer(prefix, request.params.thread);
      const convert = request.query.convert || convertDocuments;
      const signal = goneSignal(reply);
      if (!request.isMultipart()) throw notMultipart(request);
      const { files, skipped } = await workspaces.use(threadOf(request), purposeOf(request), signal, (opened) =>
        receiveUploads(context, opened, { parts: request.parts(), convert, signal, describe, deerflow }),
      );
      const names = files.map(({ filename }) => filename);
      const sizeBytes = files.reduce((sum, file) => sum + file.sizeBytes, 0);
      const facts = { names, count: files.length, sizeBytes };
      if (files.length > 0) context.fleet.timeline.note(threadOf(request), { kind: "upload", what: "files", facts });
      const success = skipped.length === 0;
      const message = `Successfully uploaded ${files.length} file(s)${success ? "" : `; skipped ${skipped.length}`}`;
      return shapes.reply.of({ success, files: [...files], message, skippedFiles: [...skipped] });
    },
  );

  app.get(
    `${prefix}/:thread/uploads${deerflow ? "/list" : ""}`,
    {
      config: config("list uploads"),
      schema: {
        summary: "Files that were uploaded",
        tags,
        params: threadParamsSchema,
        response: { 200: shapes.list.schema, ...ERRORS },
      },
    },
    async (request, reply) => {
      const describe = describer(prefix, request.params.thread);
      const found = await workspaces.use(threadOf(request), purposeOf(request), goneSignal(reply), listUploads);
      const files = found.map(({ name, sizeBytes, modifiedAt }) => ({
        ...describe(name, sizeBytes),
        extension: extensionOf(name),
        modifiedAt,
      }));
      return shapes.list.of({ files, count: files.length });
    },
  );

  const limitsRoute = {
    schema: { summary: "What may be uploaded", tags, response: { 200: shapes.limits.schema, ...ERRORS } },
  };
  if (deerflow) {
    const schema = { ...limitsRoute.schema, params: threadParamsSchema };
    app.get(`${prefix}/:thread/uploads/limits`, { config: config("limits"), schema }, () => limits);
  } else {
    app.get("/v1/uploads/limits", { config: { access: "any" }, ...limitsRoute }, () => limits);
  }

  app.delete(
    `${prefix}/:thread/uploads/:filename`,
    {
      config: config("delete upload"),
      schema: {
        summary: "Remove an uploaded file",
        tags,
        params: fileParamsSchema,
        response: { 200: uploadDeleteReplySchema, ...ERRORS },
      },
    },
    (request, reply) => removeUpload(context, request, reply, request.params.filename),
  );
}

async function removeUpload(context: GatewayContext, request: FastifyRequest, reply: FastifyReply, filename: string) {
  const name = safeName(filename);
  if (name === null || name !== filename)
    throw new SandlotError("invalid_request", { field: "params.filename", problem: "it is no name of a file" });
  await context.workspaces.use(threadOf(request), purposeOf(request), goneSignal(reply), async (files) => {
    const path = `${UPLOADS}/${name}`;
    const found = await files.stat(path);
    if (found?.kind !== "file")
      throw new SandlotError("file_not_found", { path }, { cause: new DeerFlowDetail(`File not found: ${name}`) });
    await files.remove(path);
    const extension = extensionOf(name);
    if (!context.converter.isDocument(extension.toLowerCase())) return;
    const companion = `${UPLOADS}/${name.slice(0, name.length - extension.length)}.md`;
    if ((await files.stat(companion))?.kind === "file") await files.remove(companion);
  });
  return { success: true as const, message: `Deleted ${name}` };
}

function describer(prefix: string, thread: string) {
  return (name: string, sizeBytes: number): UploadedFile => {
    const path = `${UPLOADS}/${name}`;
    const artifactUrl = `${prefix}/${thread}/artifacts${path.split("/").map(encodeURIComponent).join("/")}`;
    return { filename: name, sizeBytes, path, artifactUrl };
  };
}

function notMultipart({ headers }: FastifyRequest): SandlotError {
  const mediaType = headers["content-type"] ?? "A body without a type";
  return new SandlotError("unsupported_media", { mediaType, problem: "uploads are multipart/form-data" });
}
