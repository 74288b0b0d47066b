/**
 * `/v1/file/*`, as in the AIO API. A failure is HTTP 200, `success: false` and the reason; for a download, which is no
 * JSON, an HTTP status.
 *
 * A relative path is below the workspace, where commands start. The response has the absolute one.
 */

import type { ServerResponse } from "node:http";
import { type ErrorCode, SandlotError } from "@sandlot/contract";
import { statPath } from "../files/change.ts";
import { checkPath, pathBelow } from "../files/paths.ts";
import { download, readBytes, readLines } from "../files/read.ts";
import { appendFile, writeFile } from "../files/write.ts";
import {
  fileOperationError,
  OperationProblem,
  sendData,
  sendDetail,
  sendFailure,
  ValidationProblem,
} from "./answers.ts";
import { edit } from "./editor.ts";
import { Fields } from "./fields.ts";
import { multipart } from "./multipart.ts";
import type { AioHandler, AioRoutes } from "./routes.ts";
import { find, glob, grep, list, search } from "./search-routes.ts";

const ENCODINGS = ["utf-8", "base64", "raw"] as const;
const CHANGE_POLICIES = ["ignore", "abort"];

export function fileRoutes(workspace: string): AioRoutes {
  const told = (operation: string, name: string, work: FileWork) => toldIn(workspace, operation, name, work);
  return {
    "POST /v1/file/read": told("read", "file", async (fields, file) => {
      const [start, end] = [fields.integer("start_line"), fields.integer("end_line")];
      fields.ignore("boolean", "sudo");
      fields.check();
      return { file, content: await readText(checkPath(file), start, end) };
    }),

    "POST /v1/file/write": told("write", "file", async (fields, file) => {
      const content = fields.text("content");
      const encoding = fields.choice("encoding", ENCODINGS) ?? "utf-8";
      const [append, before, after] = ["append", "leading_newline", "trailing_newline"].map((name) =>
        fields.flagOrNull(name, false),
      );
      fields.ignore("boolean", "sudo");
      fields.check();
      const bytes = Buffer.from(content, encoding === "base64" ? "base64" : encoding === "raw" ? "latin1" : "utf8");
      const whole = Buffer.concat([Buffer.from(before ? "\n" : ""), bytes, Buffer.from(after ? "\n" : "")]);
      await (append ? appendFile(checkPath(file), chunks(whole)) : writeFile(checkPath(file), chunks(whole), {}));
      return { file, bytes_written: whole.length };
    }),

    "POST /v1/file/replace": told("replace", "file", async (fields, file) => {
      const [from, to] = [fields.text("old_str"), fields.text("new_str")];
      fields.ignore("boolean", "sudo");
      fields.check();
      const text = await readText(checkPath(file), null, null);
      const count = from === "" ? 0 : text.split(from).length - 1;
      if (count > 0) await writeFile(checkPath(file), chunks(Buffer.from(text.replaceAll(from, () => to))), {});
      return { file, replaced_count: count };
    }),

    "POST /v1/file/search": told("search", "file", search),
    "POST /v1/file/find": told("find", "path", find),
    "POST /v1/file/grep": told("grep", "path", grep),
    "POST /v1/file/glob": told("glob", "path", glob),
    "POST /v1/file/list": told("list", "path", list),
    "POST /v1/file/str_replace_editor": told("str_replace_editor", "path", edit),

    "POST /v1/file/upload": async (request, response) => {
      const { file, fields } = await multipart(request);
      const path = pathBelow(workspace, fields.path ?? `/tmp/${file.name}`);
      try {
        await writeFile(checkPath(path), chunks(file.bytes), {});
        sendData(response, { file_path: path, file_size: file.bytes.length, success: true });
      } catch (error) {
        const problem = fileOperationError(error, "upload", path);
        sendFailure(response, problem.message, problem);
      }
    },

    "GET /v1/file/download": async (_request, response, { path, change_policy: policy = "ignore" }) => {
      if (path === undefined) throw queryProblem("missing", "path", "Field required", null);
      const file = pathBelow(workspace, path);
      if (!CHANGE_POLICIES.includes(policy))
        throw queryProblem("enum", "change_policy", "Input should be 'ignore' or 'abort'", policy);
      try {
        if (policy === "abort") await sendUnchanged(response, checkPath(file));
        else await send(response, checkPath(file));
      } catch (error) {
        if (response.headersSent) response.destroy();
        else sendDetail(response, statusOf(error), (error as Error).message);
      }
    },
  };
}

type FileWork = (fields: Fields, path: string) => Promise<unknown>;

/** Responds with the data, or with the failure, about the path in the field `name`. */
function toldIn(workspace: string, operation: string, name: string, work: FileWork): AioHandler {
  return async (request, response) => {
    const fields = await Fields.of(request);
    const path = pathBelow(workspace, fields.text(name));
    let data: unknown;
    try {
      data = await work(fields, path);
    } catch (error) {
      if (!(error instanceof SandlotError) && !(error instanceof OperationProblem)) throw error;
      const problem = fileOperationError(error, operation, path);
      return sendFailure(response, problem.message, problem);
    }
    sendData(response, data);
  };
}

async function send(response: ServerResponse, path: string): Promise<void> {
  await download(
    path,
    {},
    {
      begin: (size) => {
        const length = size === null ? {} : { "content-length": size };
        response.writeHead(200, { "content-type": "application/octet-stream", ...length });
      },
      write: (bytes) =>
        new Promise((resolve, reject) => {
          if (response.destroyed) return reject(new Error("the reader has left"));
          response.write(bytes, (error) => (error ? reject(error) : resolve()));
        }),
    },
  );
  response.end();
}

/** The whole file in one version, or 409. Held in memory, because a response that has begun cannot become another. */
async function sendUnchanged(response: ServerResponse, path: string): Promise<void> {
  const before = statPath(path).version;
  const bytes = await wholeFile(path);
  if (statPath(path).version !== before) return sendDetail(response, 409, "The file changed while it was read");
  response.writeHead(200, { "content-type": "application/octet-stream", "content-length": bytes.length });
  response.end(bytes);
}

/** Lines count from 0; the end is exclusive. */
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

export async function* chunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

function queryProblem(type: string, name: string, msg: string, input: unknown): ValidationProblem {
  return new ValidationProblem([{ type, loc: ["query", name], msg, input }]);
}

/** 409 means that the file changed, and 422 that a parameter is wrong. */
const STATUSES: Partial<Record<ErrorCode, number>> = { file_not_found: 404, permission_denied: 403 };

function statusOf(error: unknown): number {
  return error instanceof SandlotError ? (STATUSES[error.code as ErrorCode] ?? 400) : 500;
}
