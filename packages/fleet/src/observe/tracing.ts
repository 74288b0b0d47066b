/** Spans through the OpenTelemetry API. Without an SDK no span is created: the only cost is a check for a provider. */

import {
  type Attributes,
  context,
  type ProxyTracerProvider,
  type Span,
  SpanStatusCode,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import { isSandlotError } from "@sandlot/contract";

const tracer = trace.getTracer("sandlot");

/** Whether a provider is registered, which may happen at any time. */
export function isTracing(): boolean {
  const provider: TracerProvider & Partial<ProxyTracerProvider> = trace.getTracerProvider();
  return provider.getDelegateTracer === undefined || provider.getDelegateTracer("sandlot") !== undefined;
}

/** Whether a span is active here, so that another one would be its child. */
export function isInSpan(): boolean {
  return isTracing() && trace.getSpan(context.active()) !== undefined;
}

/** Runs `work` in a span of that name, the parent of spans begun inside. A thrown error is the span's error. */
export async function traced<T>(name: string, attributes: Attributes, work: () => Promise<T>): Promise<T> {
  if (!isTracing()) return work();
  return tracer.startActiveSpan(name, { attributes }, async (span) => {
    try {
      return await work();
    } catch (error) {
      failSpan(span, error);
      throw error;
    } finally {
      span.end();
    }
  });
}

/** Adds attributes to the current span, if there is one. */
export function annotate(attributes: Attributes): void {
  trace.getSpan(context.active())?.setAttributes(attributes);
}

function failSpan(span: Span, error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  if (isSandlotError(error)) span.setAttribute("sandlot.error_code", error.code);
  if (error instanceof Error) span.recordException(error);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}
