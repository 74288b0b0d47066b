/** Files over the wire. Small requests are JSON; content is the body itself, so it is binary safe and streamed. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { checkFileMode, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { removePath, renamePath, statPath } from "../files/change.ts";
import { aboutPath } from "../files/file-error.ts";
import { makeDirectories } from "../files/make-directories.ts";
import { checkPath } from "../files/paths.ts";
import { type ByteSink, download, readBytes, readLines } from "../files/read.ts";
import { globPaths, grepFiles, listDirectory } from "../files/search.ts";
import { watchChanges } from "../files/watch-stream.ts";
import { appendFile, type WriteParams, writeFile } from "../files/write.ts";
import { flag, integer, invalid, limit, readJson, sendBytes, sendJson, text } from "./body.ts";
import type { Query, Routes, Takeovers } from "./routes.ts";
import { takeUpload } from "./upload.ts";

export function fileRoutes(): Routes {
  return {
    "GET /sandlot/files/read": async (_request, response, query) => {
      await read(query, response);
    },

    "GET /sandlot/files/download": async (_request, response, query) => {
      await download(checkPath(query.path), rangeOf(query), sinkTo(response));
      response.end();
    },

    "PUT /sandlot/files/write": async (request, response, query) => {
      const path = checkPath(query.path);
      const params = wishOf(query);
      await consuming(request, () => writeFile(path, request, params));
      sendJson(response, {});
    },

    "GET /sandlot/files/watch": async (_request, response, query) => {
      await watchChanges(checkPath(query.path), query.recursive !== "0", response);
    },

    "POST /sandlot/files/append": async (request, response, query) => {
      const path = checkPath(query.path);
      await consuming(request, () => appendFile(path, request));
      sendJson(response, {});
    },

    "POST /sandlot/files/mkdir": async (request, response) => {
      await makeDirectories(checkPath((await readJson(request)).path));
      sendJson(response, {});
    },

    "POST /sandlot/files/rename": async (request, response) => {
      const { from, to } = await readJson(request);
      await renamePath(checkPath(from), checkPath(to));
      sendJson(response, {});
    },

    "POST /sandlot/files/remove": async (request, response) => {
      const fields = await readJson(request);
      const path = checkPath(fields.path);
      if (path === "/") throw new SandlotError("read_only_path", { path });
      await removePath(path, flag(fields, "recursive"));
      sendJson(response, {});
    },

    "POST /sandlot/files/stat": async (request, response) => {
      sendJson(response, statPath(checkPath((await readJson(request)).path)));
    },

    "POST /sandlot/files/list": async (request, response) => {
      const fields = await readJson(request);
      const path = checkPath(fields.path);
      const depth = integer(fields, "depth", 1) ?? 1;
      const max = limit(fields, SANDBOX_LIMITS.listMaxResults);
      sendJson(response, await aboutPath(path, () => listDirectory(path, depth, max)));
    },

    "POST /sandlot/files/glob": async (request, response) => {
      const fields = await readJson(request);
      const path = checkPath(fields.path);
      const max = limit(fields, SANDBOX_LIMITS.globDefaultResults, SANDBOX_LIMITS.globMaxResults);
      const work = () => globPaths(path, text(fields, "pattern"), flag(fields, "includeDirectories"), max);
      sendJson(response, await aboutPath(path, work));
    },

    "POST /sandlot/files/grep": async (request, response) => {
      const fields = await readJson(request);
      const path = checkPath(fields.path);
      const max = limit(fields, SANDBOX_LIMITS.grepDefaultResults, SANDBOX_LIMITS.grepMaxResults);
      const options = {
        literal: flag(fields, "literal"),
        caseSensitive: flag(fields, "caseSensitive"),
        ...(fields.glob !== undefined && { glob: text(fields, "glob") }),
      };
      sendJson(response, await aboutPath(path, () => grepFiles(path, text(fields, "pattern"), options, max)));
    },
  };
}

/** Content on a separate connection. */
export const fileTakeovers: Takeovers = {
  "GET /sandlot/files/upload": (_request, connection, query) => {
    const path = checkPath(query.path);
    const params = wishOf(query);
    return takeUpload(connection, (content) => writeFile(path, content, params));
  },
};

function wishOf(query: Query): WriteParams {
  const mode = integer(query, "mode", 0);
  checkFileMode(mode);
  const ifVersion = query.ifAbsent === "1" ? null : query.ifVersion;
  return { ...(mode !== undefined && { mode }), ...(ifVersion !== undefined && { ifVersion }) };
}

async function read(query: Query, response: ServerResponse): Promise<void> {
  const path = checkPath(query.path);
  if (query.startLine === undefined && query.endLine === undefined) {
    await readBytes(path, rangeOf(query), sinkTo(response));
    response.end();
    return;
  }
  const startLine = integer(query, "startLine", 1) ?? 1;
  const endLine = integer(query, "endLine", 1) ?? Number.MAX_SAFE_INTEGER;
  if (endLine < startLine) throw invalid("endLine", "it comes before startLine");
  sendBytes(response, await readLines(path, startLine, endLine));
}

function rangeOf(query: Query): { offset?: number; length?: number } {
  const offset = integer(query, "offset", 0);
  const length = integer(query, "length", 0);
  return { ...(offset !== undefined && { offset }), ...(length !== undefined && { length }) };
}

/** A handler that refuses leaves its input unread; the rest is dropped, so that the connection stays usable. */
async function consuming(request: IncomingMessage, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    request.resume();
    throw error;
  }
}

function sinkTo(response: ServerResponse): ByteSink {
  return {
    begin(sizeBytes) {
      const length = sizeBytes === null ? {} : { "content-length": sizeBytes };
      response.writeHead(200, { "content-type": "application/octet-stream", ...length });
    },
    write: (bytes) =>
      new Promise((resolve, reject) => {
        if (response.destroyed) return reject(new Error("the reader has left"));
        // Called when the bytes have left our memory: only then may the buffer be reused.
        response.write(bytes, (error) => (error ? reject(error) : resolve()));
      }),
  };
}
