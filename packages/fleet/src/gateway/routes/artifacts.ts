/** Artifacts of an agent: shown or downloaded, in ranges; and written back, over the version that was read. */

import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import {
  ARTIFACT_TEXT_MAX_BYTES,
  artifactEditSchema,
  artifactQuerySchema,
  artifactReplySchema,
  type FileStat,
  fileStatSchema,
  SandlotError,
  threadIdSchema,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { artifactPath, directoriesOf, OUTPUTS } from "../artifacts/artifact-path.ts";
import { presentArtifact } from "../artifacts/presentation.ts";
import { readMember, type SkillPath, skillPathOf } from "../artifacts/skill-archive.ts";
import { checkIfMatch, etagOf, isNotModified, parseRange, writeCondition } from "../conditions.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { DeerFlowDetail } from "../errors.ts";
import { limited, streamed } from "../streams/bytes.ts";
import { goneSignal, purposeOf, threadOf } from "../thread-use.ts";
import type { WorkspaceFiles } from "../workspace-access.ts";
import { THREAD_ERRORS } from "./answers.ts";
import type { RouteFamily } from "./uploads.ts";

const paramsSchema = z.strictObject({ thread: threadIdSchema, "*": z.string().min(1).max(4_096) });
const ERRORS = {
  ...THREAD_ERRORS,
  400: THREAD_ERRORS[422],
  412: THREAD_ERRORS[409],
  416: THREAD_ERRORS[409],
} as const;

export function artifactRoutes(app: GatewayApp, context: GatewayContext, { prefix, deerflow }: RouteFamily): void {
  const url = `${prefix}/:thread/artifacts/*`;
  const tags = [deerflow ? "deerflow" : "artifacts"];
  const config = (purpose: string) => ({ access: "thread" as const, purpose, deerflow });
  // DeerFlow's server ignores unknown parameters, and its clients may rely on that.
  const querystring = deerflow ? z.object(artifactQuerySchema.shape) : artifactQuerySchema;
  const reading = { params: paramsSchema, querystring } as const;
  const send = (request: FastifyRequest, reply: FastifyReply, given: string, download: boolean) =>
    sendArtifact(context, request, reply, artifactPath(given, deerflow), download);

  app.head(url, { config: config("read artifact"), schema: reading }, (request, reply) =>
    send(request, reply, request.params["*"], request.query.download),
  );
  app.get(
    url,
    {
      config: config("read artifact"),
      exposeHeadRoute: false,
      schema: {
        summary: "Show or download what an agent produced",
        tags,
        ...reading,
        response: { 200: z.any().describe("Bytes."), 206: z.any().describe("A range of them."), ...ERRORS },
      },
    },
    (request, reply) => send(request, reply, request.params["*"], request.query.download),
  );
  if (deerflow) editRoute(app, context, url, tags);
  else writeRoute(app, context, url, tags);
}

/** DeerFlow's route: a text and the hash of what it replaces. */
function editRoute(app: GatewayApp, context: GatewayContext, url: string, tags: string[]): void {
  app.put(
    url,
    {
      config: { access: "thread", purpose: "edit artifact", deerflow: true },
      // A text as JSON may be several times its size.
      bodyLimit: ARTIFACT_TEXT_MAX_BYTES * 6 + 1_024,
      schema: {
        summary: "Replace a text, if it is still the one with this hash",
        tags,
        params: paramsSchema,
        body: z.object(artifactEditSchema.shape),
        response: { 200: artifactReplySchema, ...ERRORS },
      },
    },
    (request, reply) => {
      const path = writablePath(request.params["*"], true);
      const content = Buffer.from(request.body.content, "utf8");
      if (content.byteLength > ARTIFACT_TEXT_MAX_BYTES)
        throw new SandlotError("payload_too_large", { what: "The text", maxBytes: ARTIFACT_TEXT_MAX_BYTES });
      if (content.includes(0)) throw notText("it contains a NUL byte");
      return context.workspaces.use(threadOf(request), purposeOf(request), goneSignal(reply), async (files) => {
        if (path.endsWith(".skill") || (await skillAt(files, path)) !== null) throw notText("it is a skill archive");
        const stat = await artifactAt(files, path, true);
        if (stat.sizeBytes > ARTIFACT_TEXT_MAX_BYTES)
          throw new SandlotError("payload_too_large", { what: path, maxBytes: ARTIFACT_TEXT_MAX_BYTES });
        const present = await contentOf(files, path);
        if (present.includes(0) || !isUtf8(present)) throw notText("what is there is no text");
        const { expected_sha256: expected } = request.body;
        const actual = sha256(present);
        if (actual !== expected) throw new SandlotError("file_changed", { path, expected, actual });
        const written = await files.write(path, once(content), stat.version);
        return { success: true as const, path, size: written.sizeBytes, sha256: sha256(content) };
      });
    },
  );
}

/** Our route: bytes, with `If-Match` or `If-None-Match: *`. */
function writeRoute(parent: GatewayApp, context: GatewayContext, url: string, tags: string[]): void {
  const { settings, world, workspaces } = context;
  const { bodyStallMs: stallMs } = settings;
  const { maxFileBytes: maxBytes } = settings.uploads;
  void parent.register(async (scope) => {
    const app = scope as unknown as GatewayApp;
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
    app.put(
      url,
      {
        config: { access: "thread", purpose: "write artifact", streamsBody: true },
        bodyLimit: maxBytes,
        schema: {
          summary: "Write an artifact, whole or not at all, over the version that `If-Match` names",
          tags,
          params: paramsSchema,
          response: { 200: fileStatSchema, ...ERRORS },
        },
      },
      (request, reply) => {
        const path = writablePath(request.params["*"], false);
        const { ifVersion } = writeCondition(request.headers, path);
        if (ifVersion === undefined)
          throw new SandlotError("invalid_request", {
            field: "If-Match",
            problem: "an artifact is written over a version of it, or with If-None-Match: * where there is none",
          });
        if (Number(request.headers["content-length"] ?? 0) > maxBytes)
          throw new SandlotError("payload_too_large", { what: "The artifact", maxBytes });
        return workspaces.use(threadOf(request), purposeOf(request), goneSignal(reply), async (files) => {
          if ((await skillAt(files, path)) !== null) throw notText("what is in a skill archive is not written");
          await refuseLinks(files, path);
          const body = (request.body ?? request.raw) as Readable;
          const content = limited(body, { what: "The artifact", maxBytes, stallMs, world });
          const stat = await files.write(path, content, ifVersion);
          return reply.header("etag", etagOf(stat)).send(stat);
        });
      },
    );
  });
}

async function sendArtifact(
  context: GatewayContext,
  request: FastifyRequest,
  reply: FastifyReply,
  path: string,
  download: boolean,
) {
  const signal = goneSignal(reply);
  const { files, done } = await context.workspaces.open(threadOf(request), purposeOf(request), signal);
  let handedOver = false;
  try {
    const skill = await skillAt(files, path);
    if (skill !== null) return await sendMember(request, reply, files, skill, download);
    const stat = await artifactAt(files, path, false);
    checkIfMatch(request.headers, stat);
    reply.header("accept-ranges", "bytes").header("etag", etagOf(stat));
    if (isNotModified(request.headers, stat)) return reply.code(304).send();
    const range = parseRange(request.headers, stat);
    presentArtifact(reply, path, download);
    const { offset, length } = range ?? { offset: 0, length: stat.sizeBytes };
    reply.header("content-length", length);
    if (range !== null)
      reply.code(206).header("content-range", `bytes ${offset}-${offset + length - 1}/${stat.sizeBytes}`);
    if (request.method === "HEAD") return reply.send();
    if (length === 0) return reply.send(Buffer.alloc(0));
    const body = await streamed(files.read(path, { offset, length }), done);
    handedOver = true;
    return reply.send(body);
  } finally {
    if (!handedOver) await done();
  }
}

/** The archive in a path, and the member's path in it; `null` for an ordinary path. */
async function skillAt(files: WorkspaceFiles, path: string): Promise<(SkillPath & { readonly stat: FileStat }) | null> {
  const skill = skillPathOf(path);
  if (skill === null) return null;
  await refuseLinks(files, skill.archive);
  const stat = await files.stat(skill.archive);
  return stat?.kind === "file" ? { ...skill, stat } : null;
}

/** How long a browser may cache a file of an archive. */
const SKILL_CACHE_S = 300;

async function sendMember(
  request: FastifyRequest,
  reply: FastifyReply,
  files: WorkspaceFiles,
  { archive, member, stat }: SkillPath & { readonly stat: FileStat },
  download: boolean,
) {
  reply.header("accept-ranges", "bytes").header("etag", etagOf(stat));
  if (isNotModified(request.headers, stat)) return reply.code(304).send();
  const read = (offset: number, length: number) => contentOf(files, archive, { offset, length });
  const content = await readMember(read, stat.sizeBytes, member);
  if (content === null) {
    const words = new DeerFlowDetail(`File '${member}' not found in skill archive`);
    throw new SandlotError("file_not_found", { path: `${archive}/${member}` }, { cause: words });
  }
  const { byteLength: sizeBytes } = content;
  const { range: asked } = request.headers;
  const range = parseRange(request.headers, { ...stat, sizeBytes });
  if (asked !== undefined && range === null && request.headers["if-range"] === undefined)
    throw new SandlotError("range_not_satisfiable", { path: stat.path, sizeBytes });
  presentArtifact(reply, member, download);
  reply.header("cache-control", `private, max-age=${SKILL_CACHE_S}`);
  const { offset, length } = range ?? { offset: 0, length: sizeBytes };
  if (range !== null) reply.code(206).header("content-range", `bytes ${offset}-${offset + length - 1}/${sizeBytes}`);
  reply.header("content-length", length);
  return reply.send(request.method === "HEAD" ? undefined : content.subarray(offset, offset + length));
}

async function artifactAt(files: WorkspaceFiles, path: string, forWriting: boolean): Promise<FileStat> {
  await refuseLinks(files, path);
  const stat = await files.stat(path);
  if (stat === null)
    throw new SandlotError("file_not_found", { path }, { cause: new DeerFlowDetail(`Artifact not found: ${path}`) });
  if (stat.kind === "symlink") throw forWriting ? notText("it is a symbolic link") : forbidden();
  if (stat.kind !== "file")
    throw new SandlotError(
      "invalid_request",
      { field: "path", problem: "it is no file" },
      { cause: new DeerFlowDetail(`Path is not a file: ${path}`) },
    );
  return stat;
}

/** A symbolic link in the path could lead out of the workspace. */
async function refuseLinks(files: WorkspaceFiles, path: string): Promise<void> {
  for (const directory of directoriesOf(path)) if ((await files.stat(directory))?.kind === "symlink") throw forbidden();
}

function writablePath(given: string, deerflow: boolean): string {
  const path = artifactPath(given, deerflow);
  if (!path.startsWith(`${OUTPUTS}/`))
    throw new SandlotError("invalid_request", { field: "path", problem: `only what is below ${OUTPUTS} is written` });
  return path;
}

async function contentOf(
  files: WorkspaceFiles,
  path: string,
  range?: { readonly offset: number; readonly length: number },
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of files.read(path, range)) pieces.push(piece);
  return Buffer.concat(pieces);
}

function sha256(content: Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

async function* once(content: Uint8Array) {
  yield content;
}

function forbidden(): SandlotError {
  return new SandlotError("forbidden", { problem: "a symbolic link is on the way" });
}

function notText(problem: string): SandlotError {
  return new SandlotError("unsupported_media", { mediaType: "The artifact", problem });
}
