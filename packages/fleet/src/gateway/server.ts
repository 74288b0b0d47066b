/**
 * The gateway's server: the order of steps for a request, the same for every route.
 *
 *   web page? ─ 403      guards/web-pages.ts
 *   key? ─ 401, 403      guards/caller.ts (then rate limits: 429)
 *   valid? ─ 422, 413    the route's schemas
 *   handler              routes/
 *   error                errors.ts: one shape
 *   log, metrics, audit, span, for every response
 *
 * Every route declares its callers in `config.access`; registering one without it fails.
 */

import { createServer as createHttpServer, type IncomingMessage } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import cors from "@fastify/cors";
import swagger from "@fastify/swagger";
import websocket from "@fastify/websocket";
import { context, propagation, type Span, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { GATEWAY_HEADERS, PROTOCOL_VERSION, SandlotError, WEBSOCKET_PROTOCOL } from "@sandlot/contract";
import fastify, {
  type FastifyBaseLogger,
  type FastifyReply,
  type FastifyRequest,
  LogController,
  type RouteOptions,
} from "fastify";
import { serializerCompiler, validatorCompiler } from "fastify-type-provider-zod";
import type { GatewaySettings } from "../config/gateway-settings.ts";
import { isTracing } from "../observe/tracing.ts";
import type { World } from "../world/world.ts";
import type { GatewayApp, GatewayContext } from "./context.ts";
import { refuseUnknownQuery, sendError } from "./errors.ts";
import { AwaitedBodies } from "./guards/awaited-bodies.ts";
import { type AuthenticationParts, authenticate } from "./guards/caller.ts";
import { securityHeaders } from "./guards/security-headers.ts";
import { webPageGuard } from "./guards/web-pages.ts";
import { malformedHandler } from "./malformed.ts";
import { describeApi, describeRoute } from "./openapi.ts";
import type { RegisteredRoute } from "./registered-route.ts";
import { routes } from "./routes/routes.ts";
import type { Certificate } from "./tls.ts";

export interface Server {
  readonly app: GatewayApp;
  readonly registered: readonly RegisteredRoute[];
}

export async function createServer(
  context: GatewayContext,
  callers: AuthenticationParts,
  logger: FastifyBaseLogger,
  listensOn: () => number,
  certificate: Certificate | null,
): Promise<Server> {
  const { settings, world } = context;
  const app = fastify({
    loggerInstance: logger,
    // Lines about a request name its id themselves.
    childLoggerFactory: (parent) => parent,
    logController: new LogController({ disableRequestLogging: true }),
    serverFactory: serverFactory(settings, certificate),
    bodyLimit: settings.jsonMaxBytes,
    forceCloseConnections: "idle",
    trustProxy: settings.behindProxy,
    requestIdHeader: false,
    genReqId: requestIds(world),
    routerOptions: { maxParamLength: 4_096 },
    // Fastify's own 503 would not have our shape; `close` waits for running requests.
    return503OnClosing: false,
    clientErrorHandler: malformedHandler(settings, world),
    frameworkErrors: (error, request, reply) => {
      sendError(error, request, reply);
    },
  }).withTypeProvider() as unknown as GatewayApp;
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.decorateRequest("caller", null);
  app.decorateRequest("errorCode", null);
  app.decorateRequest("startedAt", 0);
  app.decorateRequest("route");
  const registered = recordRoutes(app);
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  app.setNotFoundHandler((request) => {
    const [path = ""] = request.url.split("?");
    throw new SandlotError("route_not_found", { method: request.method, path: path.slice(0, 200) });
  });

  app.addHook("onRequest", (request, _reply, done) => {
    request.startedAt = world.monotonicMs();
    request.route = request.routeOptions;
    done();
  });
  traceRequests(app);
  const guard = webPageGuard(settings, listensOn);
  const headers = securityHeaders(settings);
  app.addHook("onRequest", (request, reply, done) => {
    const isOpen = request.route.config.access === "open";
    reply
      .headers(isOpen ? headers.open : headers.usual)
      .header(GATEWAY_HEADERS.requestId, request.id)
      .header(GATEWAY_HEADERS.protocol, PROTOCOL_VERSION);
    guard(request);
    done();
  });
  if (settings.allowedOrigins.length > 0) await app.register(cors, corsOptions(settings));
  app.addHook("onRequest", (request, reply, done) => {
    const waiting = authenticate(callers, request, reply);
    if (waiting === null) done();
    else waiting.then(() => done(), done);
  });
  app.addHook("preValidation", (request, _reply, done) => {
    refuseUnknownQuery(request);
    done();
  });
  endSlowBodies(app, context);
  reportRequests(app, context);

  await app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "Sandlot",
        description: "A sandbox of its own for every conversation of an AI agent.",
        version: "1",
        license: { name: "See the repository", identifier: "LicenseRef-Sandlot" },
      },
      servers: [{ url: "/", description: "This gateway" }],
      components: { securitySchemes: { key: { type: "http", scheme: "bearer" } } },
      security: [{ key: [] }],
    },
    transform: describeRoute,
    transformObject: describeApi,
  });
  await app.register(websocket, {
    options: { maxPayload: settings.jsonMaxBytes, handleProtocols: () => WEBSOCKET_PROTOCOL },
  });
  await app.register(async (scope) => routes(scope as unknown as GatewayApp, context));
  return { app, registered };
}

function serverFactory(
  { headerMaxBytes, headersTimeoutMs, idleConnectionMs, connectionsMax }: GatewaySettings,
  certificate: Certificate | null,
) {
  const options = {
    maxHeaderSize: headerMaxBytes,
    headersTimeout: headersTimeoutMs,
    // A body may take any time while it keeps coming: its reader ends one that stalls.
    requestTimeout: 0,
    keepAliveTimeout: idleConnectionMs,
    connectionsCheckingInterval: Math.min(headersTimeoutMs, 5_000),
  };
  return (handler: (request: IncomingMessage, response: never) => void) => {
    const listener = handler as Parameters<typeof createHttpServer>[1];
    const server =
      certificate === null
        ? createHttpServer(options, listener)
        : createHttpsServer({ ...options, ...certificate }, listener);
    server.maxConnections = connectionsMax;
    return server as ReturnType<typeof createHttpServer>;
  };
}

/**
 * Ends bodies that do not arrive: one that is read whole, when it is late; one that was refused half-way, a while after
 * the response, because a client that is still sending would not see the response on a closed connection.
 */
function endSlowBodies(app: GatewayApp, { world, settings }: GatewayContext): void {
  const bodies = new AwaitedBodies(world, settings.bodyStallMs);
  app.addHook("preParsing", ({ raw, route }, _reply, payload, done) => {
    if (route.config.streamsBody !== true) bodies.await(raw);
    done(null, payload);
  });
  app.addHook("onResponse", ({ raw }, reply, done) => {
    if (raw.complete) bodies.forget(raw);
    else bodies.await(raw);
    // No further request is read from a connection whose WebSocket upgrade failed.
    if (reply.statusCode >= 400 && raw.headers.upgrade !== undefined) raw.socket.destroySoon();
    done();
  });
}

/** A counter, with a prefix for the gateway and its run. */
function requestIds(world: World): () => string {
  const run = world.randomHex(5);
  let count = 0;
  return () => `${run}${(count++).toString(16).padStart(6, "0")}`;
}

function corsOptions({ allowedOrigins }: GatewaySettings) {
  return {
    origin: [...allowedOrigins],
    methods: ["GET", "HEAD", "POST", "PUT", "DELETE"],
    allowedHeaders: [
      "Authorization",
      "Content-Type",
      "X-API-Key",
      "X-Sandlot-User",
      "If-Match",
      "If-None-Match",
      "Range",
      "Last-Event-ID",
      "Mcp-Protocol-Version",
      "Mcp-Session-Id",
      "Sandlot-Run",
    ],
    exposedHeaders: ["ETag", "Content-Range", "Retry-After", "X-Request-Id", "X-Sandlot-Protocol", "Mcp-Session-Id"],
    maxAge: 600,
  };
}

function recordRoutes(app: GatewayApp): readonly RegisteredRoute[] {
  const registered: RegisteredRoute[] = [];
  app.addHook("onRoute", (route: RouteOptions) => {
    // Preflights of CORS carry no key; the plugin responds to them, and they reach nothing behind it.
    if (route.method === "OPTIONS") route.config = { ...route.config, access: "open" };
    if (route.config?.access === undefined) throw new Error(`the route ${route.url} does not say who may ask`);
    for (const method of [route.method].flat())
      if (method !== "HEAD" && method !== "OPTIONS" && route.schema?.hide !== true)
        registered.push({ method, url: route.url });
  });
  return registered;
}

/** After every response: a log line, a count, and an audit entry if it changed something or was refused. */
function reportRequests(app: GatewayApp, { metrics, audit, world, fleet }: GatewayContext): void {
  const logs = app.log.level === "info" || app.log.level === "debug" || app.log.level === "trace";
  app.addHook("onResponse", (request, reply, done) => {
    report(request, reply);
    done();
  });

  function report(request: FastifyRequest, reply: FastifyReply): void {
    const route = request.route.url ?? "unknown";
    const durationMs = world.monotonicMs() - request.startedAt;
    const { caller, errorCode, method, id: requestId } = request;
    const status = reply.statusCode;
    metrics.request(method, route, status, durationMs, errorCode);
    const keyId = caller?.keyId ?? null;
    const { thread: named } = (request.params ?? {}) as { thread?: unknown };
    const thread = typeof named === "string" ? named.slice(0, 64) : null;
    const user = caller?.user ?? null;
    if (logs)
      request.log.info(
        { requestId, method, route, status, code: errorCode, durationMs, keyId, user, thread },
        "answered",
      );
    const read = method === "GET" || method === "HEAD" || method === "OPTIONS";
    if (read && status !== 401 && status !== 403) return;
    audit.add({
      at: world.wallMs(),
      requestId,
      keyId,
      scope: caller?.scope ?? null,
      user,
      thread,
      method,
      route,
      status,
      code: errorCode,
      // A disconnected caller has none.
      remoteAddress: request.ip ?? "",
      gateway: fleet.instanceId,
    });
  }
}

/**
 * One span per request, through the OpenTelemetry API. Without an SDK this costs next to nothing; with one, spans of
 * the fleet have this one as their parent.
 */
const tracer = trace.getTracer("sandlot-gateway");

function traceRequests(app: GatewayApp): void {
  const spans = new WeakMap<object, Span>();

  app.addHook("onRequest", (request, _reply, done) => {
    if (!isTracing()) return done();
    const parent = propagation.extract(context.active(), request.headers);
    const route = request.route.url ?? "unknown";
    const attributes = { "http.request.method": request.method, "http.route": route, "sandlot.request_id": request.id };
    const span = tracer.startSpan(`${request.method} ${route}`, { kind: SpanKind.SERVER, attributes }, parent);
    spans.set(request, span);
    context.with(trace.setSpan(parent, span), done);
  });

  app.addHook("onResponse", (request, reply, done) => {
    const span = spans.get(request);
    if (span === undefined) return done();
    span.setAttribute("http.response.status_code", reply.statusCode);
    if (request.caller !== null) span.setAttribute("sandlot.key_id", request.caller.keyId);
    if (request.errorCode !== null) span.setAttribute("sandlot.error_code", request.errorCode);
    if (reply.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
    done();
  });
}
