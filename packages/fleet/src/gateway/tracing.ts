/**
 * One span per request, through the OpenTelemetry API. Without an SDK this costs next to nothing; with one, spans of
 * the fleet have this one as their parent.
 */

import { context, propagation, type Span, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { isTracing } from "../observe/tracing.ts";
import type { GatewayApp } from "./context.ts";

const tracer = trace.getTracer("sandlot-gateway");

export function traceRequests(app: GatewayApp): void {
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
