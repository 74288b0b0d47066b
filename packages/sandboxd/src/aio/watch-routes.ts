/**
 * `/v1/file/watch*`: watches over HTTP, and one call that waits for a file. These respond with plain JSON and HTTP
 * statuses, without the wrapper of the other routes.
 *
 *   POST   /v1/file/watch               { path, recursive, exclude, debounce, include_patterns }   equal requests share a watch
 *   GET    /v1/file/watch/{id}/events   server-sent events, resumed with `Last-Event-ID: <id>:<seq>`
 *   POST   /v1/file/watch/{id}/poll     { cursor (or since), limit, timeout }
 *   POST   /v1/file/watch/wait          { path, timeout, event_types }
 *   DELETE /v1/file/watch/{id}          once per caller that set it up
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import { dirname } from "node:path/posix";
import { SandlotError } from "@sandlot/contract";
import { monotonicMs, wallMs } from "../clock.ts";
import { checkPath, pathBelow } from "../files/paths.ts";
import { randomDigits } from "../random.ts";
import { sendJson } from "../wire/body.ts";
import { sendDetail } from "./answers.ts";
import { Fields } from "./fields.ts";
import { EVENT_TYPES, type FileEvent, FileWatch, statOf, type WatchParams } from "./file-watch.ts";
import type { AioHandler, AioRoutes } from "./routes.ts";

const WATCHES_MAX = 10;
const EXCLUDE_DEFAULT = [".git", "node_modules", "__pycache__", ".venv"];
const DEBOUNCE_DEFAULT_MS = 300;
const DEBOUNCE_MAX_MS = 60_000;
const POLL_LIMIT_DEFAULT = 100;
const WAIT_DEFAULT_SECONDS = 30;
const WAIT_DEBOUNCE_MS = 100;
const HEARTBEAT_MS = 30_000;
/** The longest wait that a caller may request. */
const PATIENCE_MAX_MS = 600_000;

/** An error with its own status. */
class Refused extends Error {
  readonly status: number;
  readonly detail: unknown;

  constructor(status: number, detail: unknown) {
    super(String(status));
    this.status = status;
    this.detail = detail;
  }
}

export function watchRoutes(workspace: string): AioRoutes {
  const watches = new Map<string, FileWatch>();

  const open = (params: WatchParams): { watch: FileWatch; reused: boolean } => {
    const key = JSON.stringify(params);
    for (const watch of watches.values()) {
      if (watch.isOver || JSON.stringify(watch.params) !== key) continue;
      watch.userCount++;
      return { watch, reused: true };
    }
    if (watches.size >= WATCHES_MAX)
      throw new Refused(429, { code: "WATCH_LIMIT_EXCEEDED", message: `max watcher limit reached (${WATCHES_MAX})` });
    if (statOf(params.path) === undefined) throw new Refused(400, `path '${params.path}' does not exist`);
    const watch = new FileWatch(randomDigits(12), params);
    watches.set(watch.id, watch);
    return { watch, reused: false };
  };

  const find = (id: string): FileWatch => {
    const watch = watches.get(id);
    if (watch !== undefined) return watch;
    throw new Refused(404, { code: "WATCHER_NOT_FOUND", message: `Watcher ${id} not found` });
  };

  const leave = (watch: FileWatch): "running" | "stopped" => {
    if (--watch.userCount > 0) return "running";
    watches.delete(watch.id);
    watch.close();
    return "stopped";
  };

  return {
    "POST /v1/file/watch": told(async (request, response) => {
      const fields = await Fields.of(request);
      const path = pathBelow(workspace, fields.text("path"));
      const params = {
        recursive: fields.flagOr("recursive", true),
        exclude: fields.textsOr("exclude", EXCLUDE_DEFAULT),
        debounceMs: Math.min(Math.max(fields.integerOr("debounce", DEBOUNCE_DEFAULT_MS), 0), DEBOUNCE_MAX_MS),
        include: fields.textsOr("include_patterns", []),
      };
      fields.check();
      const { watch, reused } = open({ path: checkPath(path), ...params });
      const { id: watcher_id, createdAt: created_at } = watch;
      sendJson(response, { data: { watcher_id, path: watch.params.path, status: "running", created_at, reused } });
    }),

    "GET /v1/file/watch": (_request, response) => {
      const data = [...watches.values()].map((watch) => ({
        ...{ watcher_id: watch.id, path: watch.params.path, status: watch.isOver ? "stopped" : "running" },
        ...{ subscriber_count: watch.subscriberCount, created_at: watch.createdAt },
      }));
      sendJson(response, { data });
    },

    "POST /v1/file/watch/wait": told(async (request, response) => {
      const fields = await Fields.of(request);
      const [path, seconds] = [
        pathBelow(workspace, fields.text("path")),
        fields.integerOr("timeout", WAIT_DEFAULT_SECONDS),
      ];
      const types = fields.choices("event_types", EVENT_TYPES);
      fields.check();
      const event = await awaitFile(checkPath(path), types, seconds, open, leave);
      if (event !== null) return sendJson(response, { event });
      const message = `File ${path} did not appear within ${seconds}s`;
      throw new Refused(408, { code: "WATCH_TIMEOUT", message });
    }),

    "POST /v1/file/watch/{id}/poll": told(async (request, response, { id = "" }) => {
      const fields = await Fields.of(request, "no fields");
      // Clients of version 0.0.30 call it `since`.
      const cursor = fields.integerOr("cursor", fields.integerOr("since", 0));
      const seconds = fields.integerOr("timeout", 0);
      const limit = fields.integerOr("limit", POLL_LIMIT_DEFAULT);
      fields.check();
      const watch = find(id);
      if (watch.latest <= cursor && seconds > 0) await watch.news(patience(seconds), goneSignal(response));
      const { events, overflow } = find(id).since(cursor);
      const shown = events.slice(0, limit);
      sendJson(response, { events: shown, cursor: shown.at(-1)?.seq ?? (overflow ? watch.latest : cursor), overflow });
    }),

    "GET /v1/file/watch/{id}/events": told((request, response, { id = "" }) =>
      stream(find(id), request, response).finally(() => response.end()),
    ),

    "DELETE /v1/file/watch/{id}": told(async (_request, response, { id = "" }) => {
      sendJson(response, { data: { watcher_id: id, status: leave(find(id)) } });
    }),
  };
}

function told(handler: AioHandler): AioHandler {
  return async (request, response, parameters) => {
    try {
      await handler(request, response, parameters);
    } catch (error) {
      if (error instanceof Refused) sendDetail(response, error.status, error.detail);
      else if (error instanceof SandlotError && !response.headersSent) sendDetail(response, 400, error.message);
      else throw error;
    }
  };
}

/** For a caller that waits for a creation, an existing file has been created. */
async function awaitFile(
  path: string,
  types: readonly string[],
  seconds: number,
  open: (params: WatchParams) => { watch: FileWatch },
  leave: (watch: FileWatch) => unknown,
): Promise<FileEvent | null> {
  const parent = dirname(path);
  if (statOf(parent)?.isDirectory() !== true) throw new Refused(400, `Parent directory ${parent} does not exist`);
  const params = { recursive: false, exclude: [], debounceMs: WAIT_DEBOUNCE_MS, include: [] };
  const { watch } = open({ path: parent, ...params });
  try {
    const there = types.includes("create") ? presence(watch, path) : null;
    if (there !== null) return there;
    const deadline = monotonicMs() + patience(seconds);
    for (let cursor = watch.latest; ; ) {
      const { events } = watch.since(cursor);
      const found = events.find((event) => event.path === path && types.includes(event.type));
      if (found !== undefined) return found;
      cursor = watch.latest;
      const left = deadline - monotonicMs();
      if (left <= 0 || watch.isOver) return null;
      await watch.news(left);
    }
  } finally {
    leave(watch);
  }
}

function presence({ id }: FileWatch, path: string): FileEvent | null {
  const found = statOf(path);
  if (found === undefined) return null;
  return {
    ...{ seq: 0, watcher_id: id, type: "create", path, relative_path: path.slice(path.lastIndexOf("/") + 1) },
    ...{ old_path: null, is_dir: found.isDirectory(), timestamp: wallMs() / 1_000 },
    ...{ mtime: found.mtimeMs / 1_000, size: found.size, inode: found.ino },
  };
}

async function stream(watch: FileWatch, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const gone = goneSignal(response);
  const last = Number(/:(\d+)$/.exec(String(request.headers["last-event-id"] ?? ""))?.[1] ?? Number.NaN);
  const say = (event: string, data: object, id = "") =>
    response.write(`${id}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" });
  const { id: watcher_id } = watch;
  watch.subscriberCount++;
  try {
    say("watch_started", { watcher_id, path: watch.params.path });
    for (let cursor = Number.isNaN(last) ? 0 : last; !gone.aborted && !response.destroyed; ) {
      const { events, overflow } = watch.since(cursor);
      // A reader that missed events must re-list, and begins anew.
      if (overflow) return void say("overflow", { message: "event buffer overflow", watcher_id });
      for (const event of events) say("file_change", event, `id: ${watcher_id}:${event.seq}\n`);
      cursor = Math.max(cursor, watch.latest);
      if (watch.isOver) return;
      const before = watch.latest;
      await watch.news(HEARTBEAT_MS, gone);
      if (watch.latest === before && !watch.isOver && !gone.aborted) response.write(": heartbeat\n\n");
    }
  } finally {
    watch.subscriberCount--;
  }
}

function goneSignal(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  return gone.signal;
}

function patience(seconds: number): number {
  return Math.min(Math.max(seconds, 0) * 1_000, PATIENCE_MAX_MS);
}
