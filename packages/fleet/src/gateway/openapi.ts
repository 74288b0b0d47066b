/**
 * The OpenAPI document: what the routes' own schemas cannot say. Names of operations, which generated clients call their
 * methods by; the wildcard as a parameter; who is acted for; and what is no JSON.
 *
 * Invariants
 * - Every route of the document has a name here; one without is refused when the document is made.
 * - Every component is used, and is called by its own name.
 * - What a request sends has no other fields than it says; what a response sends may have more in a later version.
 */

import { GATEWAY_HEADERS } from "@sandlot/contract";
import type { FastifySchema, RouteOptions } from "fastify";
import { jsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod";

type Json = Record<string, unknown>;
type Content = Readonly<Record<string, Json>>;

interface Operation {
  readonly id: string;
  /** The response where it is not JSON alone; `json` is the route's own schema. */
  readonly answers?: Content | ((json: Json) => Content);
  /** The request body where the handler reads it itself. */
  readonly takes?: Content;
}

const TEXT: Json = { type: "string" };
const BINARY: Json = { type: "string", format: "binary" };
const EVENTS: Content = { "text/event-stream": TEXT };
const BYTES: Content = { "application/octet-stream": BINARY };
const EITHER = (json: Json): Content => ({ "application/json": json, ...EVENTS });
const FORM: Content = {
  "multipart/form-data": {
    type: "object",
    properties: { files: { type: "array", items: BINARY } },
    required: ["files"],
  },
};

const T = "/v1/threads/:thread";
const DF = "/api/threads/:thread";

const OPERATIONS: Readonly<Record<string, Operation>> = {
  "GET /healthz": { id: "health" },
  "GET /readyz": { id: "readiness" },
  "GET /metrics": { id: "metrics", answers: { "text/plain": TEXT } },
  "GET /openapi.json": { id: "openapi" },
  "GET /v1/threads": { id: "listThreads" },
  [`GET ${T}`]: { id: "getThread" },
  [`GET ${T}/explain`]: { id: "explainThread" },
  [`POST ${T}/stop`]: { id: "stopThread" },
  [`POST ${T}/home/reset`]: { id: "resetHome" },
  [`DELETE ${T}`]: { id: "deleteThread" },
  [`POST ${T}/branch`]: { id: "branchThread" },
  [`GET ${T}/checkpoints`]: { id: "listCheckpoints" },
  [`POST ${T}/checkpoints`]: { id: "takeCheckpoint" },
  [`POST ${T}/checkpoints/verify`]: { id: "verifyCheckpoints" },
  [`GET ${T}/checkpoints/:checkpoint`]: { id: "getCheckpoint" },
  [`DELETE ${T}/checkpoints/:checkpoint`]: { id: "removeCheckpoint" },
  [`GET ${T}/checkpoints/:checkpoint/archive`]: { id: "exportCheckpoint", answers: BYTES },
  [`POST ${T}/diff`]: { id: "diffThread" },
  [`POST ${T}/restore`]: { id: "restoreThread" },
  [`POST ${T}/undo`]: { id: "undoThread" },
  [`POST ${T}/redo`]: { id: "redoThread" },
  [`PUT ${T}/archive`]: { id: "seedThread", takes: BYTES },
  [`GET ${T}/timeline`]: { id: "readTimeline" },
  [`GET ${T}/timeline/stream`]: { id: "followTimeline", answers: EVENTS },
  [`GET ${T}/timeline/export`]: { id: "exportTimeline", answers: BYTES },
  [`POST ${T}/leases`]: { id: "acquireLease" },
  "PUT /v1/leases/:id": { id: "renewLease" },
  "DELETE /v1/leases/:id": { id: "releaseLease" },
  [`POST ${T}/exec`]: { id: "exec", answers: EITHER },
  [`GET ${T}/execs`]: { id: "listExecs" },
  [`GET ${T}/execs/:execId`]: { id: "getExecOutput" },
  [`GET ${T}/execs/:execId/output`]: { id: "readExecOutput", answers: { ...BYTES, ...EVENTS } },
  [`POST ${T}/execs/:execId/signal`]: { id: "signalExec" },
  [`POST ${T}/execs/:execId/kill`]: { id: "killExec" },
  [`POST ${T}/execs/:execId/stdin`]: { id: "writeExecStdin" },
  [`POST ${T}/execs/:execId/wait`]: { id: "waitForExecOutput" },
  [`POST ${T}/sessions`]: { id: "openSession" },
  [`GET ${T}/sessions`]: { id: "listSessions" },
  [`POST ${T}/sessions/:sessionId/exec`]: { id: "execInSession" },
  [`GET ${T}/sessions/:sessionId/output`]: { id: "getSessionOutput" },
  [`DELETE ${T}/sessions/:sessionId`]: { id: "closeSession" },
  [`GET ${T}/processes`]: { id: "listProcesses" },
  [`GET ${T}/usage`]: { id: "getUsage" },
  [`GET ${T}/usage/stream`]: { id: "followUsage", answers: EVENTS },
  [`GET ${T}/ports`]: { id: "listPorts" },
  [`POST ${T}/ports/:port/wait`]: { id: "waitForPort" },
  [`POST ${T}/ports/:port/links`]: { id: "linkPort" },
  [`POST ${T}/aio`]: { id: "createAioUrl" },
  [`DELETE ${T}/aio`]: { id: "revokeAioUrls" },
  [`DELETE ${T}/aio/:linkId`]: { id: "revokeAioUrl" },
  [`GET ${T}/terminal`]: { id: "attachTerminal" },
  [`GET ${T}/terminals`]: { id: "listTerminals" },
  [`POST ${T}/terminals`]: { id: "openTerminal" },
  [`DELETE ${T}/terminals/:terminalId`]: { id: "closeTerminal" },
  [`GET ${T}/files/list`]: { id: "listFiles" },
  [`GET ${T}/files/stat`]: { id: "statFile" },
  [`GET ${T}/files/text`]: { id: "readTextFile" },
  [`POST ${T}/files/glob`]: { id: "globFiles" },
  [`POST ${T}/files/grep`]: { id: "grepFiles" },
  [`POST ${T}/files/mkdir`]: { id: "makeDirectory" },
  [`POST ${T}/files/rename`]: { id: "renameFile" },
  [`GET ${T}/files/watch`]: { id: "watchFiles", answers: EVENTS },
  [`GET ${T}/files/archive`]: { id: "readFolder", answers: BYTES },
  [`GET ${T}/files/content`]: { id: "readFile", answers: BYTES },
  [`PUT ${T}/files/content`]: { id: "writeFile", takes: BYTES },
  [`POST ${T}/files/append`]: { id: "appendFile", takes: BYTES },
  [`DELETE ${T}/files/content`]: { id: "removeFile" },
  [`POST ${T}/uploads`]: { id: "uploadFiles", takes: FORM },
  [`GET ${T}/uploads`]: { id: "listUploads" },
  [`DELETE ${T}/uploads/:filename`]: { id: "deleteUpload" },
  "GET /v1/uploads/limits": { id: "getUploadLimits" },
  [`GET ${T}/artifacts/*`]: { id: "readArtifact", answers: BYTES },
  [`PUT ${T}/artifacts/*`]: { id: "writeArtifact", takes: BYTES },
  [`POST ${DF}/uploads`]: { id: "deerflowUploadFiles", takes: FORM },
  [`GET ${DF}/uploads/list`]: { id: "deerflowListUploads" },
  [`GET ${DF}/uploads/limits`]: { id: "deerflowGetUploadLimits" },
  [`DELETE ${DF}/uploads/:filename`]: { id: "deerflowDeleteUpload" },
  [`GET ${DF}/artifacts/*`]: { id: "deerflowReadArtifact", answers: BYTES },
  [`PUT ${DF}/artifacts/*`]: { id: "deerflowEditArtifact" },
  "GET /health": { id: "provisionerHealth" },
  "GET /api/capabilities": { id: "provisionerCapabilities" },
  "POST /api/sandboxes": { id: "provisionSandbox" },
  "GET /api/sandboxes": { id: "listProvisionedSandboxes" },
  "GET /api/sandboxes/:id": { id: "getProvisionedSandbox" },
  "DELETE /api/sandboxes/:id": { id: "endProvisionedSandbox" },
  "GET /v1/sandboxes": { id: "listSandboxes" },
  "GET /v1/sandboxes/:id": { id: "getSandbox" },
  "GET /v1/sandboxes/:id/explain": { id: "explainSandbox" },
  "POST /v1/sandboxes/:id/confirm-dead": { id: "confirmDead" },
  "DELETE /v1/sandboxes/:id": { id: "destroySandbox" },
  "GET /v1/events": { id: "followEvents", answers: EVENTS },
  "GET /v1/key": { id: "getOwnKey" },
  "GET /v1/keys": { id: "listKeys" },
  "POST /v1/keys": { id: "createKey" },
  "DELETE /v1/keys/:id": { id: "revokeKey" },
  "GET /v1/pool": { id: "getPool" },
  "GET /v1/audit": { id: "getAudit" },
  "POST /v1/dashboard/session": { id: "beginDashboardSession" },
  "GET /v1/dashboard/session": { id: "getDashboardSession" },
  "DELETE /v1/dashboard/session": { id: "endDashboardSession" },
  "POST /v1/dashboard/links": { id: "createDashboardLink" },
  "POST /v1/dashboard/links/use": { id: "useDashboardLink" },
  "GET /v1/dashboard/overview": { id: "getDashboardOverview" },
  "GET /v1/dashboard/fleet": { id: "getDashboardFleet" },
  "GET /v1/dashboard/configuration": { id: "getDashboardConfiguration" },
  "GET /v1/dashboard/doctor": { id: "getDashboardDoctor" },
  "GET /v1/dashboard/log": { id: "getDashboardLog" },
  "POST /mcp/threads/:thread": { id: "mcpCall", answers: EITHER },
  "GET /mcp/threads/:thread": { id: "mcpListen" },
  "DELETE /mcp/threads/:thread": { id: "mcpEnd" },
};

const USER_HEADER: Json = {
  type: "object",
  properties: {
    [GATEWAY_HEADERS.user]: {
      type: "string",
      description: "Whom a platform's (required) or an operator's key acts for. A user's key acts for its own user.",
    },
  },
};

type Transform = typeof jsonSchemaTransform;

/** One route of the document. */
export const describeRoute: Transform = (input) => {
  const { schema, url } = jsonSchemaTransform(input) as { schema: FastifySchema & Json; url: string };
  const route = input.route as RouteOptions;
  const hidden = schema.hide === true || url.startsWith("/docs");
  const method = String([route.method].flat().find((name) => name !== "HEAD") ?? route.method);
  const operation = OPERATIONS[`${method} ${url}`];
  if (hidden || method === "OPTIONS" || route.method === "HEAD") return { schema, url } as ReturnType<Transform>;
  if (operation === undefined) throw new Error(`the route ${method} ${url} has no name in the OpenAPI document`);
  const access = route.config?.access;
  const actsForUser = access === "thread" || access === "owned";
  const described = {
    ...schema,
    operationId: operation.id,
    ...(actsForUser ? { headers: USER_HEADER } : {}),
    ...(operation.takes === undefined ? {} : { body: { content: contentOf(operation.takes) } }),
    ...(schema.params === undefined ? {} : { params: withPath(schema.params as Json) }),
    response: answersOf(schema.response as Readonly<Record<string, Json>> | undefined, operation),
  };
  return { schema: described, url: url.replace("*", ":path") } as ReturnType<Transform>;
};

function contentOf(content: Content): Json {
  return Object.fromEntries(Object.entries(content).map(([type, schema]) => [type, { schema }]));
}

/** The wildcard becomes an ordinary parameter: OpenAPI allows no star in a name. */
function withPath(params: Json): Json {
  const text = JSON.stringify(params).replaceAll('"*"', '"path"');
  return JSON.parse(text) as Json;
}

function answersOf(response: Readonly<Record<string, Json>> | undefined, { answers }: Operation) {
  if (response === undefined || answers === undefined) return response;
  return Object.fromEntries(
    Object.entries(response).map(([status, schema]) => {
      if (!(typeof answers === "function" ? status === "200" : /^2(?!04)/.test(status))) return [status, schema];
      const content = typeof answers === "function" ? answers(schema) : answers;
      return [status, { description: schema.description ?? "Success.", content: contentOf(content) }];
    }),
  );
}

type TransformObject = typeof jsonSchemaTransformObject;

/** The document as a whole. */
export const describeApi: TransformObject = (input) => {
  const document = jsonSchemaTransformObject(input) as unknown as {
    paths: Json;
    components?: { schemas?: Record<string, Json> };
  };
  const whole = plainlyNamed({ ...document, components: { ...document.components } });
  const schemas = whole.components?.schemas ?? {};
  openResponses(whole.paths, schemas);
  for (const schema of Object.values(schemas)) absolutePaths(schema.properties as Json | undefined);
  const exec = schemas.ExecRequest;
  // `argv` is an older spelling of the same; with one spelling, every body that fits the schema is valid.
  if (exec !== undefined) {
    const { argv: _, ...properties } = exec.properties as Json;
    schemas.ExecRequest = { ...exec, properties, required: ["command"] };
  }
  return whole as unknown as ReturnType<TransformObject>;
};

/** Drops unused components, and renames `XInput` to `X` where there is no other. */
function plainlyNamed<T extends { paths: Json; components?: { schemas?: Record<string, Json> } }>(document: T): T {
  const all = document.components?.schemas ?? {};
  const used = new Set<string>();
  const visit = (value: unknown): void => {
    for (const [, name = ""] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      if (used.has(name)) continue;
      used.add(name);
      visit(all[name] ?? {});
    }
  };
  visit(document.paths);
  const nameOf = (name: string) => {
    const plain = name.replace(/Input$/, "");
    return plain !== name && !used.has(plain) ? plain : name;
  };
  const kept = Object.entries(all).filter(([name]) => used.has(name));
  const schemas = Object.fromEntries(kept.map(([name, schema]) => [nameOf(name), schema]));
  const text = JSON.stringify({ ...document, components: { ...document.components, schemas } });
  const renamed = text.replace(
    /"#\/components\/schemas\/([^"]+)"/g,
    (_, name) => `"#/components/schemas/${nameOf(name)}"`,
  );
  return JSON.parse(renamed) as T;
}

/** Takes `additionalProperties: false` from all that only responses have. */
function openResponses(paths: Json, schemas: Record<string, Json>): void {
  const requested = new Set<string>();
  const request = (value: unknown): void => {
    for (const [, name = ""] of JSON.stringify(value ?? {}).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      if (requested.has(name)) continue;
      requested.add(name);
      request(schemas[name]);
    }
  };
  const open = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    if ("additionalProperties" in value && value.additionalProperties === false) delete value.additionalProperties;
    for (const part of Object.values(value)) open(part);
  };
  const operations = Object.values(paths).flatMap((methods) =>
    Object.values(methods as Readonly<Record<string, Json>>),
  );
  for (const { requestBody } of operations) request(requestBody);
  for (const { responses } of operations) open(responses);
  for (const [name, schema] of Object.entries(schemas)) if (!requested.has(name)) open(schema);
}

/** A path inside a sandbox is absolute; a later check refuses others with its own code. */
function absolutePaths(properties: Json | undefined): void {
  for (const name of ["path", "from"]) {
    const schema = properties?.[name] as Json | undefined;
    if (
      schema?.type === "string" &&
      schema.pattern === undefined &&
      !String(schema.description ?? "").includes("elative")
    )
      schema.pattern = "^/";
  }
}
