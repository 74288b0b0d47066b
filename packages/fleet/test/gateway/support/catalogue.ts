/**
 * Every route with a request that its owner may make, on existing things. The contract test and the matrix of
 * authorisation walk it; it must name exactly the routes that the server registers.
 */

import { CHECKPOINT_ENTRIES } from "./catalogue-checkpoints.ts";
import { DASHBOARD_ENTRIES } from "./catalogue-dashboard.ts";
import { type Entry, MARKER, ROOT, thread, type World } from "./catalogue-entry.ts";
import { FILE_ENTRIES } from "./catalogue-files.ts";
import { PROVISIONER_ENTRIES } from "./catalogue-provisioner.ts";
import { TIMELINE_ENTRIES } from "./catalogue-timeline.ts";
import type { Caller } from "./stage.ts";

export { type Entry, MARKER, type World } from "./catalogue-entry.ts";

const MCP_HEADERS = { accept: "application/json, text/event-stream" };
const mcpCall = (command: string) => ({
  json: {
    ...{ jsonrpc: "2.0", id: 1, method: "tools/call" },
    params: { name: "bash", arguments: { command, description: "test" } },
  },
  headers: MCP_HEADERS,
});

export const CATALOGUE: readonly Entry[] = [
  { method: "GET", url: "/healthz", who: "open", status: 200, request: () => ["/healthz"] },
  { method: "GET", url: "/readyz", who: "open", status: 200, request: () => ["/readyz"] },
  { method: "GET", url: "/metrics", who: "operator", status: 200, request: () => ["/metrics"] },
  { method: "GET", url: "/openapi.json", who: "any", status: 200, request: () => ["/openapi.json"] },
  {
    method: "POST",
    url: "/v1/threads/:thread/leases",
    who: "owner",
    status: 201,
    foreign: 201,
    request: (world) => [thread(world, "/leases"), { json: { purpose: "p", ttlMs: 2_000 } }],
    invalid: [{ ttlMs: "x" }, { ttlMs: 1 }, { purpose: "" }, { unknown: 1 }, [], "x"],
  },
  {
    method: "PUT",
    url: "/v1/leases/:id",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [`/v1/leases/${world.leaseId}`],
    invalidPaths: () => ["/v1/leases/%00", "/v1/leases/a%2Fb"],
  },
  {
    method: "DELETE",
    url: "/v1/leases/:id",
    who: "owner",
    status: 204,
    foreign: 404,
    request: (world) => [`/v1/leases/${world.leaseId}`],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/exec",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, "/exec"), { json: { command: "cat /mnt/user-data/workspace/secret; true" } }],
    invalid: [
      {},
      { command: 1 },
      { argv: [] },
      { argv: "x" },
      { command: "x", argv: ["x"] },
      { command: "x", env: { "1a": "" } },
      { command: "x", timeoutMs: -1 },
      { command: "x", execId: "a/b" },
      { command: "a\0b" },
      { command: "x", more: 1 },
      null,
    ],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/execs",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, "/execs")],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/execs/:execId",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, `/execs/${world.execId}`)],
    invalidPaths: (world) => [thread(world, `/execs/${world.execId}?maxBytes=3`), thread(world, "/execs/a%2Fb")],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/execs/:execId/output",
    who: "owner",
    status: 200,
    foreign: 404,
    endless: true,
    request: (world) => [thread(world, `/execs/${world.execId}/output`)],
    invalidPaths: (world) => [
      thread(world, `/execs/${world.execId}/output?stdoutOffset=-1`),
      thread(world, "/execs/a%2Fb/output"),
    ],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/execs/:execId/signal",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, `/execs/${world.execId}/signal`), { json: { signal: "SIGTERM" } }],
    invalid: [{}, { signal: "SIGNOPE" }, { signal: 9 }],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/execs/:execId/kill",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, `/execs/${world.execId}/kill`)],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/execs/:execId/stdin",
    who: "owner",
    status: 204,
    foreign: 404,
    request: (world) => [thread(world, `/execs/${world.execId}/stdin`), { json: { data: "x" } }],
    invalid: [{ data: 1 }, { base64: "%" }, { data: "x", base64: "eA==" }],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/execs/:execId/wait",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, `/execs/${world.execId}/wait`), { json: { pattern: MARKER, timeoutMs: 2_000 } }],
    invalid: [{}, { pattern: "x" }, { pattern: "x", timeoutMs: 0 }, { pattern: "(", timeoutMs: 10 }],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/processes",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, "/processes")],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/usage",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, "/usage")],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/ports",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, "/ports")],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/ports/:port/wait",
    who: "owner",
    status: 501,
    foreign: 501,
    request: (world) => [thread(world, "/ports/3000/wait"), { json: { timeoutMs: 10 } }],
    invalid: [{}, { timeoutMs: "x" }],
    invalidPaths: (world) => [
      thread(world, "/ports/0/wait"),
      thread(world, "/ports/x/wait"),
      thread(world, "/ports/70000/wait"),
    ],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/ports/:port/links",
    who: "owner",
    status: 201,
    foreign: 404,
    request: (world) => [thread(world, "/ports/3000/links"), { json: { ttlMs: 1_000 } }],
    invalid: [{ ttlMs: 1 }, { ttlMs: 1e12 }, { x: 1 }],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/aio",
    who: "owner",
    status: 201,
    foreign: 201,
    request: (world) => [thread(world, "/aio"), { json: { ttlMs: 1_000 } }],
    invalid: [{ ttlMs: 1 }, { ttlMs: 1e12 }, { x: 1 }],
  },
  {
    method: "DELETE",
    url: "/v1/threads/:thread/aio",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, "/aio")],
  },
  {
    method: "DELETE",
    url: "/v1/threads/:thread/aio/:linkId",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, `/aio/${"0".repeat(48)}`)],
    invalidPaths: (world) => [thread(world, "/aio/x"), thread(world, `/aio/${"0".repeat(96)}`)],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/terminal",
    who: "owner",
    // Without an upgrade; the WebSocket has its own tests.
    status: 422,
    foreign: 422,
    request: (world) => [thread(world, "/terminal")],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/terminals",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, "/terminals")],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/terminals",
    who: "owner",
    status: 201,
    foreign: 201,
    request: (world) => [thread(world, "/terminals"), { json: { columns: 80, rows: 24 } }],
    invalid: [{}, { columns: 0, rows: 1 }, { columns: 1, rows: 1, command: [] }],
  },
  {
    method: "DELETE",
    url: "/v1/threads/:thread/terminals/:terminalId",
    who: "owner",
    status: 204,
    foreign: 204,
    request: (world) => [thread(world, `/terminals/${world.terminalId}`)],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/sessions",
    who: "owner",
    status: 501,
    foreign: 501,
    request: (world) => [thread(world, "/sessions"), { json: {} }],
    invalid: [{ sessionId: "a/b" }, { cwd: 1 }],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/sessions",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [thread(world, "/sessions")],
  },
  {
    method: "POST",
    url: "/v1/threads/:thread/sessions/:sessionId/exec",
    who: "owner",
    status: 501,
    foreign: 501,
    request: (world) => [thread(world, "/sessions/s/exec"), { json: { command: "ls" } }],
    invalid: [{}, { command: 1 }],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/sessions/:sessionId/output",
    who: "owner",
    status: 501,
    foreign: 404,
    request: (world) => [thread(world, "/sessions/s/output")],
    invalidPaths: (world) => [thread(world, "/sessions/s/output?stdoutOffset=-1")],
  },
  {
    method: "DELETE",
    url: "/v1/threads/:thread/sessions/:sessionId",
    who: "owner",
    status: 204,
    foreign: 204,
    request: (world) => [thread(world, "/sessions/s")],
  },
  {
    method: "POST",
    url: "/mcp/threads/:thread",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [`/mcp/threads/${world.thread}`, mcpCall("cat /mnt/user-data/workspace/secret; true")],
  },
  ...["GET", "DELETE"].map(
    (method): Entry => ({
      method,
      url: "/mcp/threads/:thread",
      who: "owner",
      // The protocol's response of a server without sessions.
      status: 405,
      foreign: 405,
      request: (world) => [`/mcp/threads/${world.thread}`, { headers: MCP_HEADERS }],
    }),
  ),
  ...CHECKPOINT_ENTRIES,
  ...TIMELINE_ENTRIES,
  ...FILE_ENTRIES,
  ...PROVISIONER_ENTRIES,
  ...DASHBOARD_ENTRIES,
];

/** Creates everything that the catalogue's requests are about. */
export async function prepare(owner: Caller, name: string, keyId: string): Promise<World> {
  const at = `/v1/threads/${name}`;
  const lease = await owner.ask<{ leaseId: string; sandboxId: string }>(201, "POST", `${at}/leases`, {
    json: { ttlMs: 60_000 },
  });
  await owner.ask(200, "POST", `${at}/checkpoints`, { json: { label: "kept" } });
  const command = `echo ${MARKER} > secret; printf '# ${MARKER}' > ${ROOT}/outputs/report.md; echo ${MARKER} > ${ROOT}/uploads/alices.txt`;
  await owner.ask(200, "POST", `${at}/exec`, { json: { command } });
  const json = { command: `echo ${MARKER}; cat`, background: true, execId: `exec-${name}` };
  await owner.ask(202, "POST", `${at}/exec`, { json });
  const { terminalId } = await owner.ask<{ terminalId: string }>(201, "POST", `${at}/terminals`, {
    json: { columns: 80, rows: 24 },
  });
  const head = await owner.call("HEAD", `${at}/files/content?path=${ROOT}/outputs/report.md`);
  return {
    thread: name,
    leaseId: lease.leaseId,
    sandboxId: lease.sandboxId,
    execId: json.execId,
    terminalId,
    etag: head.headers.get("etag") ?? "",
    keyId,
  };
}
