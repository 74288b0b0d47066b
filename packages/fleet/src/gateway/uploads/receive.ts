/**
 * Receives files: stages each while it streams in, and places all when they are complete.
 *
 * Invariants
 * - No file is held whole in memory; every limit is checked while bytes arrive.
 * - A request that is refused, fails or is cut off leaves the existing files unchanged, and nothing of its own. What a
 *   killed gateway has staged through a sandbox goes with an upload a day later.
 * - Two files of one request never get the same name; a file of an earlier request is replaced, atomically.
 * - A file whose name belongs to something other than a regular file is skipped and listed in the response.
 */

import { extname } from "node:path";
import type { Readable } from "node:stream";
import type { Multipart } from "@fastify/multipart";
import { type FileStat, isSandlotError, SandlotError, type UploadedFile, WORKSPACE_ROOT } from "@sandlot/contract";
import type { GatewayContext } from "../context.ts";
import { DeerFlowDetail } from "../errors.ts";
import { limited } from "../streams/bytes.ts";
import type { StagedFile, WorkspaceFiles } from "../workspace-access.ts";
import { claimName, isStaged, safeName } from "./names.ts";

export const UPLOADS = `${WORKSPACE_ROOT}/uploads`;

/** Longer than any request takes. */
const ABANDONED_MS = 24 * 3_600_000;
/** Of one request: a sandbox can make as many as it likes. */
const ABANDONED_MAX = 100;

interface Received {
  readonly name: string;
  readonly original: string;
  readonly staged: StagedFile;
}

export interface UploadOutcome {
  readonly files: readonly UploadedFile[];
  readonly skipped: readonly string[];
}

export interface UploadOrder {
  readonly parts: AsyncIterableIterator<Multipart>;
  readonly convert: boolean;
  readonly signal: AbortSignal;
  readonly describe: (name: string, sizeBytes: number) => UploadedFile;
  /** A request without any usable file name is then no error: DeerFlow ignores such files silently. */
  readonly deerflow: boolean;
}

export async function receiveUploads(
  context: GatewayContext,
  files: WorkspaceFiles,
  order: UploadOrder,
): Promise<UploadOutcome> {
  const staged: StagedFile[] = [];
  try {
    const { received, sent, unusable } = await stageAll(context, files, order, staged);
    if (sent === 0) throw refusal("No files provided", invalid("files", "no file was sent"));
    if (received.length === 0 && !order.deerflow)
      throw invalid("files", "none of them has a name that a file may have");
    const { files: placed, skipped } = await placeAll(context, files, order, received, staged);
    // DeerFlow ignores them silently.
    return { files: placed, skipped: order.deerflow ? skipped : [...unusable, ...skipped] };
  } finally {
    // A placed file has nothing left to discard.
    for (const one of staged) await one.discard();
  }
}

async function stageAll(
  { settings, world }: GatewayContext,
  files: WorkspaceFiles,
  { parts, signal }: UploadOrder,
  staged: StagedFile[],
): Promise<{ readonly received: readonly Received[]; readonly sent: number; readonly unusable: readonly string[] }> {
  const { maxFiles, maxFileBytes, maxTotalBytes } = settings.uploads;
  const received: Received[] = [];
  const unusable: string[] = [];
  const taken = new Set<string>();
  let total = 0;
  let count = 0;
  for await (const part of parts) {
    signal.throwIfAborted();
    if (part.type !== "file") continue;
    count += 1;
    if (count > maxFiles) throw tooMany(maxFiles);
    const original = safeName(part.filename ?? "");
    if (original === null) {
      unusable.push(part.filename ?? "");
      part.file.resume();
      continue;
    }
    const what = `The file ${original}`;
    const content = limited(part.file as Readable, {
      what,
      maxBytes: maxFileBytes,
      stallMs: settings.bodyStallMs,
      world,
    });
    const one = await files.stage(UPLOADS, within(content, original, maxTotalBytes - total, maxTotalBytes));
    staged.push(one);
    total += one.sizeBytes;
    received.push({ name: claimName(original, taken), original, staged: one });
  }
  return { received, sent: count, unusable };
}

async function placeAll(
  context: GatewayContext,
  files: WorkspaceFiles,
  order: UploadOrder,
  received: readonly Received[],
  staged: StagedFile[],
): Promise<UploadOutcome> {
  const skipped: string[] = [];
  const placed: UploadedFile[] = [];
  const entries = await files.list(UPLOADS);
  await removeAbandoned(files, entries);
  const existing = new Set(entries.map(({ path }) => nameOf(path)));
  const taken = new Set([...existing, ...received.map(({ name }) => name)]);
  for (const { name, original, staged: one } of received) {
    const markdown = order.convert ? await markdownFor(context, files, order, name, one, taken) : {};
    if (markdown.staged !== undefined) staged.push(markdown.staged);
    try {
      await one.place(`${UPLOADS}/${name}`);
    } catch (error) {
      if (!isSandlotError(error, "file_exists") && !isSandlotError(error, "is_a_directory")) throw error;
      skipped.push(original);
      continue;
    }
    const described = {
      ...order.describe(name, one.sizeBytes),
      ...(name === original ? {} : { originalFilename: original }),
    };
    placed.push({ ...described, ...(await placeMarkdown(order, markdown)) });
  }
  return { files: placed, skipped };
}

/** By the sandbox's own clock: the youngest is what this request has just staged. */
async function removeAbandoned(files: WorkspaceFiles, entries: readonly FileStat[]): Promise<void> {
  const staged = entries.filter(({ path, kind }) => kind === "file" && isStaged(nameOf(path)));
  const now = staged.reduce((youngest, { modifiedAt }) => Math.max(youngest, modifiedAt), 0);
  const abandoned = staged.filter(({ modifiedAt }) => modifiedAt < now - ABANDONED_MS);
  for (const { path } of abandoned.slice(0, ABANDONED_MAX))
    await files.remove(path).catch((error: unknown) => {
      // Another gateway was first.
      if (!isSandlotError(error, "file_not_found")) throw error;
    });
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

interface Markdown {
  readonly name?: string;
  readonly staged?: StagedFile;
  readonly problem?: string;
}

/** An unreadable document is uploaded all the same; the response says why it has no Markdown. */
async function markdownFor(
  { converter }: GatewayContext,
  files: WorkspaceFiles,
  { signal }: UploadOrder,
  name: string,
  document: StagedFile,
  taken: Set<string>,
): Promise<Markdown> {
  const extension = extname(name).toLowerCase();
  if (!converter.isDocument(extension)) return {};
  try {
    const text = await converter.convert(extension, document.read(), signal);
    const staged = await files.stage(UPLOADS, once(text));
    return { staged, name: claimName(`${name.slice(0, name.length - extension.length)}.md`, taken) };
  } catch (error) {
    // The upload itself is good; its entry says why there is no Markdown.
    if (!isSandlotError(error, "unsupported_media") && !isSandlotError(error, "dependency_missing")) throw error;
    return { problem: error.message };
  }
}

async function placeMarkdown(
  { describe }: UploadOrder,
  { name, staged, problem }: Markdown,
): Promise<Partial<UploadedFile>> {
  if (problem !== undefined) return { conversionError: problem };
  if (name === undefined || staged === undefined) return {};
  await staged.place(`${UPLOADS}/${name}`);
  const { filename, path, artifactUrl } = describe(name, staged.sizeBytes);
  return { markdownFilename: filename, markdownPath: path, markdownArtifactUrl: artifactUrl };
}

/** The uploaded files, by name, without unfinished ones. */
export async function listUploads(
  files: WorkspaceFiles,
): Promise<readonly { name: string; sizeBytes: number; modifiedAt: number }[]> {
  return (await files.list(UPLOADS))
    .filter(({ kind }) => kind === "file")
    .map(({ path, sizeBytes, modifiedAt }) => ({
      name: nameOf(path),
      sizeBytes,
      modifiedAt,
    }))
    .filter(({ name }) => !isStaged(name))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

async function* within(content: AsyncIterable<Uint8Array>, name: string, left: number, maxTotalBytes: number) {
  let size = 0;
  try {
    for await (const piece of content) {
      size += piece.byteLength;
      if (size > left) {
        const error = { what: "The upload as a whole", maxBytes: maxTotalBytes };
        throw refusal("Total upload size too large", new SandlotError("payload_too_large", error));
      }
      yield piece;
    }
  } catch (error) {
    const ours = isSandlotError(error, "payload_too_large") && !(error.cause instanceof DeerFlowDetail);
    throw ours ? refusal(`File too large: ${name}`, error) : error;
  }
}

async function* once(content: Uint8Array) {
  yield content;
}

function tooMany(max: number): SandlotError {
  const words = `Too many files: maximum is ${max}`;
  return refusal(words, new SandlotError("too_many_files", { what: "The upload", max }));
}

function refusal(words: string, { code, details }: SandlotError): SandlotError {
  return new SandlotError(code, details, { cause: new DeerFlowDetail(words) });
}

function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}
