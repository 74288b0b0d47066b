/**
 * The AIO sandbox API, as far as its clients use it for commands and files: `/v1/sandbox`, `/v1/shell/*`, `/v1/bash/*`
 * and `/v1/file/*`. A client for an AIO sandbox works with the daemon.
 *
 *   request ─▶ key, in one of three places ─▶ route ─▶ the wrapper, or 422, or `success: false`
 *
 * A client without a key gets a separate connection, socket or port (`keylessServer`), which serves only this API.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { arch, release } from "node:os";
import { KEPT_HOME, SandlotError } from "@sandlot/contract";
import type { ExecTable } from "../exec/exec-table.ts";
import { listeningPorts } from "../introspection/ports.ts";
import type { SessionTable } from "../sessions/session-table.ts";
import { sendJson } from "../wire/body.ts";
import { OperationProblem, sendDetail, sendFailure, ValidationProblem } from "./answers.ts";
import { bashRoutes } from "./bash-routes.ts";
import { BodyTooLarge } from "./body.ts";
import { fileRoutes } from "./file-routes.ts";
import { type InstalledTools, installedTools } from "./installed-tools.ts";
import { type AioRoutes, findRoute, methodsOf } from "./routes.ts";
import { shellRoutes } from "./shell-routes.ts";
import { watchRoutes } from "./watch-routes.ts";

export interface AioParts {
  readonly execs: ExecTable;
  readonly sessions: SessionTable;
  /** Called for work, as opposed to a check whether the sandbox is there. */
  onWork(): void;
}

/** `isAllowed`: whether this key is valid; `null` when the request has none. */
export type Aio = (
  request: IncomingMessage,
  response: ServerResponse,
  isAllowed: (key: string | null) => boolean,
) => Promise<void>;

/** The first image with this API. */
const VERSION = "1.11.0";
const PROBED = "/v1/sandbox";

export function aio({ execs, sessions, onWork }: AioParts): Aio {
  const routes: AioRoutes = {
    [`GET ${PROBED}`]: async (_request, response) =>
      sendJson(response, aboutSandbox(execs, await installedTools(execs))),
    ...shellRoutes(execs, sessions),
    ...bashRoutes(execs),
    ...fileRoutes(execs.around.defaultCwd),
    ...watchRoutes(execs.around.defaultCwd),
  };
  return async (request, response, isAllowed) => {
    const url = new URL(tidy(request.url ?? "/"), "http://sandbox");
    if (!isAllowed(keyOf(request, url))) return refuse(request, response, 401, "Unauthorized");
    const found = findRoute(routes, request.method ?? "GET", url.pathname);
    if (found === null) return refuseRoute(request, response, methodsOf(routes, url.pathname));
    const isWork = url.pathname !== PROBED;
    if (isWork) onWork();
    try {
      await found.handler(request, response, { ...Object.fromEntries(url.searchParams), ...found.parameters });
    } catch (error) {
      request.resume();
      answerError(response, error);
    }
    if (isWork) onWork();
  };
}

/** Serves `answer`, and never closes an idle connection. */
export function keylessServer(answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>): Server {
  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      request.resume();
      answerError(response, error);
    });
  });
  server.keepAliveTimeout = 0;
  server.requestTimeout = 0;
  return server;
}

/** In its own header, as a bearer token, or in the query. */
function keyOf({ headers }: IncomingMessage, url: URL): string | null {
  const own = headers["x-aio-api-key"];
  if (typeof own === "string") return own;
  const bearer = /^Bearer (.+)$/i.exec(headers.authorization ?? "")?.[1];
  return bearer ?? url.searchParams.get("api_key");
}

/** A base URL with a trailing slash makes a path with two leading ones; a trailing slash has no meaning. */
function tidy(url: string): string {
  const [path = "", ...query] = url.split("?");
  const plain = path.replace(/\/{2,}/g, "/").replace(/(?<=.)\/$/, "");
  return [plain, ...query].join("?");
}

function refuseRoute(request: IncomingMessage, response: ServerResponse, allowed: readonly string[]): void {
  const isThere = allowed.length > 0;
  if (isThere) response.setHeader("allow", allowed.join(", "));
  refuse(request, response, isThere ? 405 : 404, isThere ? "Method Not Allowed" : "Not Found");
}

function refuse(request: IncomingMessage, response: ServerResponse, status: number, detail: string): void {
  request.resume();
  sendDetail(response, status, detail);
}

function answerError(response: ServerResponse, error: unknown): void {
  if (response.headersSent) response.destroy();
  else if (error instanceof ValidationProblem) sendDetail(response, 422, error.problems);
  else if (error instanceof BodyTooLarge) sendDetail(response, 413, error.message);
  else if (error instanceof OperationProblem) sendFailure(response, error.message);
  else if (error instanceof SandlotError) sendFailure(response, error.message);
  else sendJson(response, { success: false, message: (error as Error).message, data: null, hint: null }, 500);
}

function aboutSandbox(execs: ExecTable, { python, nodejs, utils }: InstalledTools): unknown {
  const { HOME = KEPT_HOME, USER = "sandbox" } = execs.around.environment;
  const workspace = execs.around.defaultCwd;
  return {
    ...{ success: true, message: "Operation successful", data: null, hint: null },
    ...{ home_dir: HOME, workspace, version: VERSION },
    detail: {
      system: {
        ...{ os: "linux", os_version: release(), arch: arch(), user: USER, home_dir: HOME, workspace },
        timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
        occupied_ports: listeningPorts().map(({ port }) => String(port)),
      },
      runtime: { python, nodejs },
      utils,
    },
  };
}
