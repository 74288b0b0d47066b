/**
 * A later version next to this one, in every direction. This version accepts additions to the responses of a later
 * gateway or daemon; it refuses additions to the requests of a later client or fleet, by name. Routes come from the
 * OpenAPI document and from the table of the daemon's paths: a route that no call has reached fails the test.
 */

import { request } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { join } from "node:path";
import { DAEMON_HEADERS, isSandlotError, type Sandbox, type SandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  connectAhead,
  DaemonAttachment,
  readActivity,
  rebindDaemon,
  renewDaemon,
} from "../../packages/fleet/src/sandboxd/index.ts";
import { DAEMON_LIMITS } from "../../packages/fleet/src/untrusted/limits.ts";
import { world } from "../../packages/fleet/test/sandboxd/attached.ts";
import { type CallStage, CLIENT_CALLS, SANDBOX_CALLS } from "./client-calls.ts";
import { LATER_ERROR, LATER_FIELD, LATER_WORD } from "./growth.ts";
import { laterDaemon } from "./later-daemon.ts";
import { type LaterGateway, laterGateway } from "./later-gateway.ts";
import { openVersionStage, type VersionStage } from "./stage.ts";

/** Routes that no client method calls: for people, monitors, browsers, DeerFlow and MCP. */
const NOT_OF_THE_CLIENT = [
  ...["GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json"],
  ...["GET /v1/sandboxes/{id}", "GET /v1/uploads/limits", "DELETE /v1/threads/{thread}/uploads/{filename}"],
  ...["GET /v1/threads/{thread}/artifacts/{path}", "PUT /v1/threads/{thread}/artifacts/{path}"],
  ...["POST /api/threads/{thread}/uploads", "GET /api/threads/{thread}/uploads/list"],
  ...["GET /api/threads/{thread}/uploads/limits", "DELETE /api/threads/{thread}/uploads/{filename}"],
  ...["GET /api/threads/{thread}/artifacts/{path}", "PUT /api/threads/{thread}/artifacts/{path}"],
  ...["GET /health", "GET /api/capabilities", "GET /api/sandboxes", "POST /api/sandboxes"],
  ...["GET /api/sandboxes/{id}", "DELETE /api/sandboxes/{id}"],
  ...["GET /v1/dashboard/session", "POST /v1/dashboard/session", "DELETE /v1/dashboard/session"],
  ...["POST /v1/dashboard/links", "POST /v1/dashboard/links/use", "GET /v1/dashboard/overview"],
  ...["GET /v1/dashboard/fleet", "GET /v1/dashboard/log", "GET /v1/threads/{thread}/files/archive"],
  ...["GET /v1/dashboard/configuration", "GET /v1/dashboard/doctor", "POST /v1/sandboxes/{id}/confirm-dead"],
  ...["POST /mcp/threads/{thread}", "GET /mcp/threads/{thread}", "DELETE /mcp/threads/{thread}"],
];

/** Routes whose responses hold maps or events, which are passed on whole. */
const KEEP_ALL: ReadonlySet<string> = new Set([
  ...["explain", "explainThread", "linkPort", "events", "timeline.read", "timeline.follow"],
]);
const CALL_MAX_MS = 10_000;

let versions: VersionStage;
let later: LaterGateway;
let listener: Server;
let port: number;

beforeAll(async () => {
  listener = createServer((socket) => socket.end());
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  port = (listener.address() as AddressInfo).port;
});
afterAll(() => listener.close());

/** Runs calls one after the other; returns the failed ones with their errors. */
async function failuresOf(calls: Readonly<Record<string, (stage: CallStage) => Promise<unknown>>>, stage: CallStage) {
  const failures: Record<string, unknown> = {};
  for (const [name, call] of Object.entries(calls)) {
    try {
      const result = await within(call(stage));
      if (!KEEP_ALL.has(name) && JSON.stringify(result)?.includes(LATER_FIELD))
        failures[name] = "a field that this version does not know";
    } catch (error) {
      failures[name] = error;
    }
  }
  return failures;
}

/** A hanging call is reported by name, before it hangs the whole test. */
async function within<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("it did not end")), CALL_MAX_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function table(title: string, rows: readonly string[]): void {
  console.info(`\n${title}\n${rows.map((row) => `  ${row.padEnd(58)} understood`).join("\n")}`);
}

test("a later gateway is read by this client, on every route", async () => {
  versions = await openVersionStage();
  later = await laterGateway(versions.stage.gateway.url, versions.document);
  try {
    const client = versions.client(later.url);
    await using lease = await client.acquire({ thread: "versions", ttlMs: 2_000 });
    const stage = { client, lease, sandbox: lease.sandbox, at: versions.at, port };
    expect(lease.recovery.kind).toBe(LATER_WORD);
    const failures = await failuresOf({ ...SANDBOX_CALLS, ...CLIENT_CALLS }, stage);
    // These ids and states do not exist, which the gateway reports with codes that both versions know.
    expect(failures).toEqual({
      destroySandbox: expect.objectContaining({ code: "sandbox_not_found" }),
      "checkpoints.undo": expect.objectContaining({ code: "nothing_to_undo" }),
      "checkpoints.redo": expect.objectContaining({ code: "nothing_to_undo" }),
    });
    await expect.poll(() => later.changed.get("PUT /v1/leases/{id}")).toBeGreaterThan(0);
    const summary = await client.findThread("versions");
    expect([summary?.thread, summary?.sandbox?.state]).toEqual(["versions", LATER_WORD]);

    later.fails = true;
    const wrong = await failuresOf({ ...SANDBOX_CALLS, ...CLIENT_CALLS }, stage);
    const { code, message, retryable, remedy } = LATER_ERROR;
    const same = expect.objectContaining({ code, message, retryable, remedy, status: 418 });
    for (const [name, error] of Object.entries(wrong)) expect([name, error]).toEqual([name, same]);
    for (const error of Object.values(wrong)) expect((error as SandlotError).details).toMatchObject({ count: 3 });
    expect(Object.keys(wrong).sort()).toEqual(Object.keys({ ...SANDBOX_CALLS, ...CLIENT_CALLS }).sort());
    later.fails = false;

    later.protocol = "2.0";
    await expect(client.listSandboxes()).rejects.toMatchObject({ code: "protocol_incompatible" });
    for (const protocol of [null, "1.77", "not a version"]) {
      later.protocol = protocol;
      await client.listSandboxes();
    }
    const routes = Object.entries(versions.document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const reached = routes.filter((route) => later.changed.has(route));
    expect([...reached, ...NOT_OF_THE_CLIENT].sort()).toEqual([...routes].sort());
    table("a later gateway, this client", reached);
  } finally {
    await later.close();
    await versions.stage.done();
  }
});

test("a later client is understood by this gateway: what is new is refused by its name", async () => {
  const own = await openVersionStage();
  try {
    const caller = own.stage.operator.with({ "x-sandlot-user": "u" });
    const refused: string[] = [];
    for (const [path, methods] of Object.entries(own.document.paths))
      for (const [method, { requestBody }] of Object.entries(methods)) {
        if (!path.startsWith("/v1/")) continue;
        const url = path
          .replace("{port}", "80")
          .replace("{linkId}", "0".repeat(48))
          .replace(/\{[^}]+\}/g, "x");
        const asked = `${method.toUpperCase()} ${path}`;
        const query = await caller.call(method.toUpperCase(), `${url}?${LATER_FIELD}=1`);
        expect([asked, query.status, await query.text()]).toEqual([asked, 422, expect.stringContaining(LATER_FIELD)]);
        if (requestBody?.content["application/json"] !== undefined) {
          const body = await caller.call(method.toUpperCase(), url, { json: { [LATER_FIELD]: 1 } });
          expect([asked, body.status, await body.text()]).toEqual([asked, 422, expect.stringContaining(LATER_FIELD)]);
        }
        refused.push(asked);
      }
    expect(refused.length).toBeGreaterThan(50);
  } finally {
    await own.stage.done();
  }
});

test("a later daemon is read by this fleet, on every call", async () => {
  const own = await openVersionStage();
  const path = join(own.daemon.directory, "later");
  const daemon = await laterDaemon(path, own.daemon.socketPath);
  const target = { ...own.target, address: { path } };
  try {
    const attachment = await DaemonAttachment.open(target, world);
    const { sandbox } = attachment;
    const stage = { sandbox: sandbox as Sandbox, at: own.at, port } as CallStage;
    expect(await failuresOf(SANDBOX_CALLS, stage)).toEqual({});
    expect((await sandbox.exec("true")).status).toBe(LATER_WORD);
    expect((await sandbox.files.stat(own.at("a.txt"))).kind).toBe(LATER_WORD);
    expect(await sandbox.activity()).not.toHaveProperty(LATER_FIELD);
    await readActivity(target);
    await renewDaemon(target);
    (await connectAhead(target)).destroy();
    (await attachment.connect(port)).destroy();

    daemon.fails = true;
    const wrong = await failuresOf(SANDBOX_CALLS, stage);
    daemon.fails = false;
    const known = Object.entries(wrong).filter(
      ([, error]) => !isSandlotError(error) || (error as SandlotError).code !== LATER_ERROR.code,
    );
    // Calls over a separate connection are not refused here.
    expect(known.map(([name]) => name)).toEqual([]);
    expect(Object.keys(SANDBOX_CALLS).filter((name) => !(name in wrong))).toEqual(["files.upload", "terminals.attach"]);

    await rebindDaemon(target, { generation: 8, token: "next" });
    await attachment.close();
    const reached = Object.keys(DAEMON_LIMITS).filter((name) => daemon.changed.has(name));
    expect(reached).toEqual(Object.keys(DAEMON_LIMITS));
    table("a later daemon, this fleet", reached);
  } finally {
    await daemon.close();
    await own.stage.done();
  }
});

test("a later fleet is understood by this daemon: what is new is refused by its name", async () => {
  const { daemon, stage } = await openVersionStage();
  try {
    const ask = (method: string, path: string, body: string) =>
      new Promise<{ status: number; text: string }>((resolve, reject) => {
        const { sandboxId, generation, token } = daemon.config;
        const headers = {
          [DAEMON_HEADERS.sandboxId]: sandboxId,
          [DAEMON_HEADERS.generation]: String(generation),
          [DAEMON_HEADERS.token]: token,
          "content-length": Buffer.byteLength(body),
        };
        const asked = request({ socketPath: daemon.socketPath, method, path, headers }, (response) => {
          let text = "";
          response.setEncoding("utf8").on("data", (part: string) => {
            text += part;
          });
          response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
        });
        asked.on("error", reject).end(body);
      });
    const codeAndField = ({ status, text }: { status: number; text: string }) => {
      const { error } = JSON.parse(text) as { error: { code: string; details: { field: string } } };
      return [status, error.code, error.details.field];
    };
    for (const path of Object.keys(DAEMON_LIMITS))
      for (const method of ["GET", "POST", "PUT"])
        expect([path, ...codeAndField(await ask(method, `${path}?${LATER_FIELD}=1`, "{}"))]).toEqual([
          ...[path, 422, "invalid_request", LATER_FIELD],
        ]);
    const bytesOnly = ["exec/stdin", "files/write", "files/append", "files/upload", "files/read"];
    const isJson = (path: string) =>
      !bytesOnly.some((name) => path.endsWith(name)) &&
      /(exec|spawn|kill|signal|port|output|mkdir|rename|remove|stat|list|glob|grep|open|close|rebind|renew)$/.test(
        path,
      );
    for (const path of Object.keys(DAEMON_LIMITS).filter(isJson)) {
      const [status, code, field] = codeAndField(await ask("POST", path, JSON.stringify({ [LATER_FIELD]: 1 })));
      // A path that only serves GET says so.
      if (field !== "path") expect([path, status, code, field]).toEqual([path, 422, "invalid_request", LATER_FIELD]);
    }
    expect(await ask("POST", "/sandlot/renew", "{}")).toMatchObject({ status: 200 });
  } finally {
    await stage.done();
  }
});
