/**
 * The daemon's server: every request is authorized, then routed; holds are counted.
 *
 *   request ─▶ credentials ─▶ route ─▶ response, or the connection is taken over (tunnel, terminal)
 *                 └ unauthorized, stale_generation       └ an error of the contract, or `internal`
 *
 * Invariants
 * - A request without the present credentials has no effect but a refusal.
 * - Idle connections are never closed: a closed connection means that a side has ended.
 * - A rebind ends the holds of the previous generation.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import {
  AIO_TUNNEL_PORT,
  type CanaryReport,
  type DaemonActivity,
  type HoldGreeting,
  PROTOCOL_VERSION,
  type RenewReply,
} from "@sandlot/contract";
import { type Aio, aio, keylessServer } from "../aio/index.ts";
import { wallMs } from "../clock.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import type { ActivityMonitor } from "../introspection/activity.ts";
import { listeningPortsWithProcesses } from "../introspection/ports.ts";
import { resourceUsage } from "../introspection/usage.ts";
import type { SessionTable } from "../sessions/session-table.ts";
import type { SupervisorMemory } from "../supervision/memory.ts";
import type { TerminalTable } from "../terminals/terminal-table.ts";
import { checkPort, flag, integer, invalid, readJson, refuse, sendError, sendJson, text } from "./body.ts";
import type { CredentialCheck } from "./credentials.ts";
import { execRoutes } from "./exec-routes.ts";
import { fileRoutes, fileTakeovers } from "./file-routes.ts";
import { readExpectation, waitForFile } from "./rebind-expectation.ts";
import { checkQueryFields } from "./request-fields.ts";
import type { Query, Routes, Takeovers } from "./routes.ts";
import { sessionRoutes } from "./session-routes.ts";
import { terminalRoutes } from "./terminal-routes.ts";
import { attachSocket } from "./terminal-socket.ts";
import { acceptTunnel, openTunnel } from "./tunnel.ts";

export interface DaemonServer {
  readonly http: Server;
  /** Serves only the AIO API, to every connection. */
  keylessAio(): Server;
  /** How many connections hold the sandbox now. */
  holdCount(): number;
  /** Wall-clock time of the last request with valid credentials, or of the end of a hold. */
  lastContactAt(): number;
  /** Whether there was a request for work yet. */
  isInUse(): boolean;
}

/** The server's dependencies. */
export interface Served {
  readonly execs: ExecTable;
  readonly sessions: SessionTable;
  readonly terminals: TerminalTable;
  readonly activity: ActivityMonitor;
  readonly memory: SupervisorMemory;
  /** Distinguishes this run of the daemon from the next. */
  readonly run: string;
  /** What the canary showed; `null` without one. */
  readonly canary: CanaryReport | null;
}

export function daemonServer(credentials: CredentialCheck, served: Served): DaemonServer {
  const { execs, sessions, terminals, activity, memory } = served;
  const holds = new Set<ServerResponse>();
  let lastContactAt = wallMs();
  let isInUse = false;
  const touch = (name = "") => {
    lastContactAt = wallMs();
    // A renewal says that the sandbox is still wanted, but does not use it.
    isInUse ||= name !== RENEW;
    memory.noteUse();
  };
  /** Counts as activity, unlike reads. */
  const work: Routes = {
    ...execRoutes(execs),
    ...fileRoutes(),
    ...sessionRoutes(sessions),
    ...terminalRoutes(terminals),
  };
  const about: Routes = {
    ...introspectionRoutes(execs, activity, holds),
    ...bindingRoutes(credentials, served, holds, touch),
  };

  const admit = (request: IncomingMessage): { name: string; query: Query } => {
    const [path = "", search] = (request.url ?? "").split("?", 2);
    const name = `${request.method} ${path}`;
    // A rebind checks by itself: it also accepts the previous credentials.
    if (name !== REBIND) {
      credentials.check(request.headers);
      touch(name);
    }
    const query = parseQuery(search);
    checkQueryFields(request, query);
    return { name, query };
  };

  let aioApi: Aio | undefined;
  // Few sandboxes use it.
  const openAio = (): Aio => (aioApi ??= aio({ execs, sessions, onWork: () => activity.note() }));
  const isKeyKnown = (key: string | null) => {
    const isKnown = key !== null && credentials.knows(key);
    if (isKnown) touch();
    return isKnown;
  };
  const keylessAio = (isAllowed: () => boolean) =>
    keylessServer((request, response) => {
      touch();
      return openAio()(request, response, isAllowed);
    });
  const handToAio = (socket: Duplex) => {
    // A connection belongs to the generation for which it was opened.
    const { generation } = credentials;
    keylessAio(() => credentials.generation === generation).emit("connection", socket);
  };
  const takeovers = takeoverRoutes(credentials.sandboxId, terminals, activity, handToAio);

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (request.url?.startsWith(AIO_PATHS)) return openAio()(request, response, isKeyKnown);
    const { name, query } = admit(request);
    const isWork = Object.hasOwn(work, name);
    const handler = isWork ? work[name] : Object.hasOwn(about, name) ? about[name] : undefined;
    if (handler === undefined) throw invalid("path", `there is no ${name}`);
    const counts = isWork && !ASKING.has(name);
    if (counts) activity.note();
    await handler(request, response, query);
    if (counts) activity.note();
  };

  const takeOver = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    const { name, query } = admit(request);
    const takeover = Object.hasOwn(takeovers, name) ? takeovers[name] : undefined;
    if (takeover === undefined) throw invalid("path", `there is no ${name}`);
    activity.note();
    await takeover(request, { socket, head }, query);
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
  http.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // The handler that takes it over adds its own listener; until then a broken connection needs no handling.
    socket.on("error", () => {});
    takeOver(request, socket, head).catch((error) => refuse(socket, error));
  });
  http.keepAliveTimeout = 0;
  http.headersTimeout = 0;
  http.requestTimeout = 0;
  return {
    http,
    keylessAio: () => keylessAio(() => true),
    holdCount: () => holds.size,
    lastContactAt: () => lastContactAt,
    isInUse: () => isInUse,
  };
}

const REBIND = "POST /sandlot/rebind";
const RENEW = "POST /sandlot/renew";
const AIO_PATHS = "/v1/";
/** Read-only requests: they do not count as activity. */
const ASKING: ReadonlySet<string> = new Set([
  "GET /sandlot/execs",
  "GET /sandlot/sessions",
  "GET /sandlot/terminals",
  "GET /sandlot/files/watch",
]);
/** The kernel detects a vanished host after this and its own timeout. */
const PROBE_AFTER_MS = 30_000;
/** Buffer of one upload or download. Less makes both sides wait for each other more often. */
const BUFFERED_BYTES = 1024 * 1024;
const NEVER_MS = 2 ** 31 - 1;

function takeoverRoutes(
  sandboxId: string,
  terminals: TerminalTable,
  activity: ActivityMonitor,
  handToAio: (socket: Duplex) => void,
): Takeovers {
  return {
    ...fileTakeovers,
    "GET /sandlot/connect": (_request, connection, query) => {
      const port = checkPort(query);
      if (port === AIO_TUNNEL_PORT) return acceptTunnel(connection, handToAio);
      return openTunnel(port, connection, sandboxId, () => activity.notePreview());
    },
    "GET /sandlot/terminals/attach": (request, { socket, head }, query) => {
      const terminal = terminals.find(text(query, "terminalId"));
      return attachSocket(request, socket, head, terminal, integer(query, "fromOffset", 0));
    },
  };
}

function bindingRoutes(
  credentials: CredentialCheck,
  { run, canary }: Pick<Served, "run" | "canary">,
  holds: Set<ServerResponse>,
  touch: () => void,
): Routes {
  const hold = (response: ServerResponse): void => {
    holds.add(response);
    response.on("close", () => {
      holds.delete(response);
      touch();
    });
    const { generation } = credentials;
    const greeting: HoldGreeting = {
      pid: process.pid,
      generation,
      run,
      protocol: PROTOCOL_VERSION,
      ...(canary && { canary }),
    };
    response.writeHead(200, { "content-type": "application/json" });
    response.write(`${JSON.stringify(greeting)}\n`);
  };
  return {
    "GET /sandlot/hold": (_request, response) => hold(response),

    [REBIND]: async (request, response) => {
      const fields = await readJson(request);
      const generation = integer(fields, "generation", 0);
      const token = text(fields, "token");
      if (generation === undefined || token === "") throw invalid("generation", "a generation and a token are needed");
      const expected = readExpectation(fields);
      if (expected !== null) {
        // Only the fleet may let the daemon look at a path.
        credentials.checkRebind(request.headers, { generation, token });
        await waitForFile(expected);
      }
      const changed = credentials.rebind(request.headers, { generation, token });
      touch();
      if (changed) for (const old of holds) old.destroy();
      // A rebind may also hold the sandbox in the same step.
      if (flag(fields, "hold")) hold(response);
      else sendJson(response, {});
    },

    [RENEW]: async (request, response) => {
      await readJson(request);
      const reply: RenewReply = { run };
      sendJson(response, reply);
    },
  };
}

function introspectionRoutes(execs: ExecTable, activity: ActivityMonitor, holds: ReadonlySet<unknown>): Routes {
  return {
    "GET /sandlot/activity": async (_request, response) => {
      const found: DaemonActivity = { ...(await activity.read()), heldCount: holds.size };
      sendJson(response, found);
    },
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
