/**
 * The daemon's server: every request is checked, then routed; whoever holds a connection is counted.
 *
 *   request ─▶ credentials ─▶ route ─▶ answer
 *                 └ unauthorized, stale_generation       └ an error of the contract, or `internal`
 *
 * Invariants
 * - Nothing but a refusal happens for a request without the present credentials.
 * - Connections are never closed for being idle: the close of one means that a side has ended.
 * - A rebind ends the holds of the generation before.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { HoldGreeting } from "@sandlot/contract";
import { wallMs } from "../clock.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import type { ActivityMonitor } from "../introspection/activity.ts";
import { listeningPortsWithProcesses } from "../introspection/ports.ts";
import { resourceUsage } from "../introspection/usage.ts";
import { integer, invalid, readJson, sendError, sendJson, text } from "./body.ts";
import type { CredentialCheck } from "./credentials.ts";
import { execRoutes } from "./exec-routes.ts";
import { fileRoutes } from "./file-routes.ts";
import type { Query, Routes } from "./routes.ts";

export interface DaemonServer {
  readonly http: Server;
  /** How many hold a connection now. */
  holdCount(): number;
  /** Wall-clock time of the last request with valid credentials, or of the end of a hold. */
  lastContactAt(): number;
}

export function daemonServer(credentials: CredentialCheck, execs: ExecTable, activity: ActivityMonitor): DaemonServer {
  const holds = new Set<ServerResponse>();
  let lastContactAt = wallMs();
  const work = { ...execRoutes(execs), ...fileRoutes() };
  const about = { ...introspectionRoutes(execs, activity), ...bindingRoutes(credentials, holds, () => touch()) };
  const touch = () => {
    lastContactAt = wallMs();
  };

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const [path = "", search] = (request.url ?? "").split("?", 2);
    const name = `${request.method} ${path}`;
    // Checks for itself: it is also asked with what was valid before.
    if (name !== REBIND) credentials.check(request.headers);
    touch();
    const isWork = Object.hasOwn(work, name);
    const handler = isWork ? work[name] : Object.hasOwn(about, name) ? about[name] : undefined;
    if (handler === undefined) throw invalid("path", `there is no ${name}`);
    if (isWork) activity.note();
    await handler(request, response, parseQuery(search));
    if (isWork) activity.note();
  };

  const options = {
    keepAlive: true,
    keepAliveInitialDelay: PROBE_AFTER_MS,
    connectionsCheckingInterval: NEVER_MS,
    highWaterMark: BUFFERED_BYTES,
  };
  const http = createServer(options, (request, response) => {
    response.sendDate = false;
    answer(request, response).catch((error) => {
      request.resume();
      sendError(response, error);
    });
  });
  http.keepAliveTimeout = 0;
  http.headersTimeout = 0;
  http.requestTimeout = 0;
  return { http, holdCount: () => holds.size, lastContactAt: () => lastContactAt };
}

const REBIND = "POST /sandlot/rebind";
/** A host that went away without a word is noticed by the kernel, after this and its own patience. */
const PROBE_AFTER_MS = 30_000;
/** Of one upload or download, in memory. Less makes both sides wait for each other more often. */
const BUFFERED_BYTES = 1024 * 1024;
const NEVER_MS = 2 ** 31 - 1;

function bindingRoutes(credentials: CredentialCheck, holds: Set<ServerResponse>, touch: () => void): Routes {
  return {
    "GET /sandlot/hold": (_request, response) => {
      holds.add(response);
      response.on("close", () => {
        holds.delete(response);
        touch();
      });
      const greeting: HoldGreeting = { pid: process.pid, generation: credentials.generation };
      response.writeHead(200, { "content-type": "application/json" });
      response.write(`${JSON.stringify(greeting)}\n`);
    },

    [REBIND]: async (request, response) => {
      const fields = await readJson(request);
      const generation = integer(fields, "generation", 0);
      const token = text(fields, "token");
      if (generation === undefined || token === "") throw invalid("generation", "a generation and a token are needed");
      if (credentials.rebind(request.headers, { generation, token })) for (const hold of holds) hold.destroy();
      sendJson(response, {});
    },

    "POST /sandlot/renew": (request, response) => {
      request.resume();
      sendJson(response, {});
    },
  };
}

function introspectionRoutes(execs: ExecTable, activity: ActivityMonitor): Routes {
  return {
    "GET /sandlot/activity": async (_request, response) => sendJson(response, await activity.read()),
    "GET /sandlot/processes": (_request, response) => sendJson(response, activity.processes()),
    "GET /sandlot/ports": (_request, response) =>
      sendJson(response, listeningPortsWithProcesses(execs.processes.rows().map(({ pid }) => pid))),
    "GET /sandlot/usage": (_request, response) => sendJson(response, resourceUsage()),
  };
}

function parseQuery(search: string | undefined): Query {
  if (search === undefined) return {};
  return Object.fromEntries(new URLSearchParams(search));
}
