/**
 * `/v1/file/*`, as the AIO API has them. What fails is told with HTTP 200, `success: false` and why; a download, which is
 * no JSON, with an HTTP status.
 */

import { extname } from "node:path/posix";
import { SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { statPath } from "../files/change.ts";
import { aboutPath } from "../files/file-error.ts";
import { checkPath, join } from "../files/paths.ts";
import { download, readBytes, readLines } from "../files/read.ts";
import { globPaths, grepFiles, listDirectory } from "../files/search.ts";
import { appendFile, writeFile } from "../files/write.ts";
import { pathPattern } from "../patterns/glob-pattern.ts";
import { fileOperationError, sendData, sendDetail, sendFailure } from "./answers.ts";
import { edit } from "./editor.ts";
import { Fields } from "./fields.ts";
import { multipart } from "./multipart.ts";
import type { AioHandler, AioRoutes } from "./routes.ts";

const GREP_MAX = 500;
const GLOB_MAX = 5_000;
const DEPTH_MAX = 1_000;

export function fileRoutes(): AioRoutes {
  return {
    "POST /v1/file/read": told("read", "file", async (fields, file) => {
      const [start, end] = [fields.integer("start_line"), fields.integer("end_line")];
      fields.check();
      return { file, content: await readText(checkPath(file), start, end) };
    }),

    "POST /v1/file/write": told("write", "file", async (fields, file) => {
      const content = fields.text("content");
      const encoding = fields.choice("encoding", ["utf-8", "base64", "raw"], "utf-8");
      const [append, before, after] = ["append", "leading_newline", "trailing_newline"].map((name) =>
        fields.flag(name, false),
      );
      fields.check();
      const bytes = Buffer.from(content, encoding === "base64" ? "base64" : encoding === "raw" ? "latin1" : "utf8");
      const whole = Buffer.concat([Buffer.from(before ? "\n" : ""), bytes, Buffer.from(after ? "\n" : "")]);
      await (append ? appendFile(checkPath(file), chunks(whole)) : writeFile(checkPath(file), chunks(whole), {}));
      return { file, bytes_written: whole.length };
    }),

    "POST /v1/file/replace": told("replace", "file", async (fields, file) => {
      const [from, to] = [fields.text("old_str"), fields.text("new_str")];
      fields.check();
      const text = await readText(checkPath(file), null, null);
      const count = from === "" ? 0 : text.split(from).length - 1;
      if (count > 0) await writeFile(checkPath(file), chunks(Buffer.from(text.replaceAll(from, () => to))), {});
      return { file, replaced_count: count };
    }),

    "POST /v1/file/search": told("search", "file", async (fields, file) => {
      const pattern = fields.text("regex");
      fields.check();
      const path = checkPath(file);
      const { matches } = await aboutPath(path, () =>
        grepFiles(path, pattern, { caseSensitive: true }, SANDBOX_LIMITS.listMaxResults),
      );
      return {
        file,
        matches: matches.map(({ line }) => line),
        line_numbers: matches.map(({ lineNumber }) => lineNumber),
      };
    }),

    "POST /v1/file/find": told("find", "path", async (fields, given) => {
      const pattern = fields.text("glob");
      fields.check();
      const path = checkPath(given);
      const { paths } = await aboutPath(path, () => globPaths(path, anywhere(pattern), false, GLOB_MAX));
      return { path: given, files: paths };
    }),

    "POST /v1/file/grep": told("grep", "path", grep),
    "POST /v1/file/glob": told("glob", "path", glob),
    "POST /v1/file/list": told("list", "path", list),
    "POST /v1/file/str_replace_editor": told("str_replace_editor", "path", edit),

    "POST /v1/file/upload": async (request, response) => {
      const { file, fields } = await multipart(request);
      const path = fields.path ?? `/tmp/${file.name}`;
      try {
        await writeFile(checkPath(path), chunks(file.bytes), {});
        sendData(response, { file_path: path, file_size: file.bytes.length, success: true });
      } catch (error) {
        const problem = fileOperationError(error, "upload", path);
        sendFailure(response, problem.message, problem);
      }
    },

    "GET /v1/file/download": async (_request, response, { path }) => {
      if (path === undefined) {
        const problem = { type: "missing", loc: ["query", "path"], msg: "Field required", input: null };
        return sendDetail(response, 422, [problem]);
      }
      try {
        await download(
          checkPath(path),
          {},
          {
            begin: (size) => {
              const length = size === null ? {} : { "content-length": size };
              response.writeHead(200, { "content-type": "application/octet-stream", ...length });
            },
            write: (bytes) =>
              new Promise((resolve, reject) => {
                if (response.destroyed) return reject(new Error("nobody reads any more"));
                response.write(bytes, (error) => (error ? reject(error) : resolve()));
              }),
          },
        );
        response.end();
      } catch (error) {
        if (response.headersSent) response.destroy();
        else sendDetail(response, statusOf(error), (error as Error).message);
      }
    },
  };
}

/** The data of an answer, or the reason why there is none, about the path that the field `name` holds. */
function told(operation: string, name: string, work: (fields: Fields, path: string) => Promise<unknown>): AioHandler {
  return async (request, response) => {
    const fields = await Fields.of(request);
    const path = fields.text(name);
    let data: unknown;
    try {
      data = await work(fields, path);
    } catch (error) {
      if (!(error instanceof SandlotError)) throw error;
      const problem = fileOperationError(error, operation, path);
      return sendFailure(response, problem.message, problem);
    }
    sendData(response, data);
  };
}

/** Lines count from 0, and the last one is not among them. */
export async function readText(path: string, start: number | null, end: number | null): Promise<string> {
  if (start === null && end === null) return decoded(path, await wholeFile(path));
  const first = (start ?? 0) + 1;
  const last = end ?? Number.MAX_SAFE_INTEGER;
  return last < first ? "" : decoded(path, await readLines(path, first, last));
}

async function wholeFile(path: string): Promise<Buffer> {
  const parts: Buffer[] = [];
  await readBytes(
    path,
    {},
    {
      begin: () => {},
      write: async (bytes) => void parts.push(Buffer.from(bytes)),
    },
  );
  return Buffer.concat(parts);
}

function decoded(path: string, bytes: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new SandlotError("unsupported_media", { mediaType: path, problem: "it is not UTF-8 text" });
  }
}

async function grep(fields: Fields, given: string): Promise<unknown> {
  const pattern = fields.text("pattern");
  const [include, exclude] = [fields.texts("include"), fields.texts("exclude")];
  const literal = fields.flag("fixed_strings", false);
  const caseSensitive = !fields.flag("case_insensitive", false);
  const [before, after] = [fields.integer("context_before") ?? 0, fields.integer("context_after") ?? 0];
  const [max, offset] = [fields.integer("max_results") ?? GREP_MAX, fields.integer("offset") ?? 0];
  const recursive = fields.flag("recursive", true);
  fields.check();
  const path = checkPath(given);
  const found = await aboutPath(path, () => grepFiles(path, pattern, { literal, caseSensitive }, GREP_LOOKED_AT_MAX));
  const wanted = found.matches.filter(
    ({ path: file }) =>
      (include === null || matchesAny(include, path, file)) &&
      !(exclude !== null && matchesAny(exclude, path, file)) &&
      (recursive || !relativeTo(path, file).includes("/")),
  );
  const shown = wanted.slice(offset, offset + max);
  const matches = await Promise.all(
    shown.map(async ({ path: file, lineNumber, line }) => ({
      ...{ file, line_number: lineNumber, line_content: line },
      ...(before > 0 && { context_before: await lines(file, lineNumber - before, lineNumber - 1) }),
      ...(after > 0 && { context_after: await lines(file, lineNumber + 1, lineNumber + after) }),
    })),
  );
  return {
    ...{ path: given, pattern, matches, match_count: matches.length, files_searched: null },
    files_matched: new Set(matches.map(({ file }) => file)).size,
    truncated: found.truncated || wanted.length > offset + max,
  };
}

/** More than anybody reads; what is filtered afterwards must have been found. */
const GREP_LOOKED_AT_MAX = 10_000;

async function lines(file: string, first: number, last: number): Promise<string[]> {
  if (last < 1) return [];
  const text = (await readLines(file, Math.max(first, 1), last)).toString("utf8");
  return text === "" ? [] : text.replace(/\n$/, "").split("\n");
}

async function glob(fields: Fields, given: string): Promise<unknown> {
  const pattern = fields.text("pattern");
  const exclude = fields.texts("exclude");
  const [hidden, filesOnly] = [fields.flag("include_hidden", false), fields.flag("files_only", true)];
  const metadata = fields.flag("include_metadata", true);
  const max = fields.integer("max_results") ?? GLOB_MAX;
  const sortBy = fields.optionalText("sort_by") ?? "path";
  const descending = fields.flag("sort_desc", false);
  fields.check();
  const path = checkPath(given);
  const found = await aboutPath(path, () => globPaths(path, pattern, !filesOnly, GLOB_MAX));
  const paths = found.paths.filter(
    (file) => (hidden || !isHidden(relativeTo(path, file))) && !(exclude !== null && matchesAny(exclude, path, file)),
  );
  const files = sorted(
    paths.flatMap((file) => infoOf(file)),
    sortBy,
    descending,
  ).map((info) => ({
    ...{ path: info.path, name: info.name, is_directory: info.is_directory },
    ...(metadata && { size: info.size, modified_time: info.modified_time }),
  }));
  const total_count = files.length;
  return {
    path: given,
    pattern,
    files: files.slice(0, max),
    total_count,
    truncated: found.truncated || total_count > max,
  };
}

async function list(fields: Fields, given: string): Promise<unknown> {
  const [recursive, hidden] = [fields.flag("recursive", false), fields.flag("show_hidden", true)];
  const types = fields.texts("file_types");
  const depth = fields.integer("max_depth");
  const [withSize, withPermissions] = [fields.flag("include_size", true), fields.flag("include_permissions", false)];
  const sortBy = fields.optionalText("sort_by") ?? "name";
  const descending = fields.flag("sort_desc", false);
  fields.check();
  const path = checkPath(given);
  const levels = recursive ? (depth ?? DEPTH_MAX) : 1;
  const { entries } = await aboutPath(path, () => listDirectory(path, levels, SANDBOX_LIMITS.listMaxResults));
  const infos = entries
    .filter(({ path: file }) => hidden || !isHidden(relativeTo(path, file)))
    .flatMap(({ path: file }) => infoOf(file))
    .filter(({ extension, is_directory }) => types === null || is_directory || types.includes(extension ?? ""));
  const files = sorted(infos, sortBy, descending).map(({ size, permissions, ...info }) => ({
    ...info,
    ...(withSize && { size }),
    ...(withPermissions && { permissions }),
  }));
  const directories = files.filter((file) => file.is_directory).length;
  return {
    ...{ path: given, files, total_count: files.length },
    ...{ directory_count: directories, file_count: files.length - directories },
  };
}

interface FileInfo {
  readonly name: string;
  readonly path: string;
  readonly is_directory: boolean;
  readonly size: number | null;
  readonly modified_time: string;
  readonly permissions: string;
  readonly extension: string | null;
}

/** Nothing, when it has gone meanwhile. */
function infoOf(path: string): FileInfo[] {
  try {
    const { kind, sizeBytes, modifiedAt, mode } = statPath(path);
    const name = path.slice(path.lastIndexOf("/") + 1);
    const is_directory = kind === "directory";
    return [
      {
        ...{ name, path, is_directory },
        size: is_directory ? null : sizeBytes,
        modified_time: new Date(modifiedAt).toISOString(),
        permissions: mode.toString(8).padStart(3, "0"),
        extension: is_directory ? null : extname(name) || null,
      },
    ];
  } catch {
    return [];
  }
}

function sorted(infos: readonly FileInfo[], by: string, descending: boolean): FileInfo[] {
  const key = (info: FileInfo): string | number =>
    by === "size"
      ? (info.size ?? 0)
      : by === "modified" || by === "modified_time"
        ? info.modified_time
        : by === "name"
          ? info.name
          : info.path;
  const order = [...infos].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
  return descending ? order.reverse() : order;
}

/** A pattern without a slash means names, wherever they are. */
function anywhere(pattern: string): string {
  return pattern.includes("/") ? pattern : `**/${pattern}`;
}

function matchesAny(patterns: readonly string[], root: string, file: string): boolean {
  const relative = relativeTo(root, file);
  return patterns.some((pattern) => pathPattern(anywhere(pattern)).matches(relative));
}

function relativeTo(root: string, file: string): string {
  const below = join(root, "");
  return file.startsWith(below) ? file.slice(below.length) : file.slice(file.lastIndexOf("/") + 1);
}

function isHidden(relative: string): boolean {
  return relative.split("/").some((name) => name.startsWith("."));
}

export async function* chunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

function statusOf(error: unknown): number {
  return error instanceof SandlotError ? error.status : 500;
}
