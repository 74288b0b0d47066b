/** A provider of spans that a test registers through the API alone, as an SDK would. */

import { AsyncLocalStorage } from "node:async_hooks";
import {
  type Attributes,
  type Context,
  type ContextManager,
  context,
  ROOT_CONTEXT,
  type Span,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";

export interface Seen {
  readonly name: string;
  readonly parent: string | null;
  readonly attributes: Attributes;
  failed: boolean;
  ended: boolean;
}

/** Every span that begins from now on. */
export function collect(): Seen[] {
  const seen: Seen[] = [];
  const begun = new Map<Span, Seen>();
  const startSpan = (
    name: string,
    options: { attributes?: Attributes } = {},
    from: Context = context.active(),
  ): Span => {
    const parent = trace.getSpan(from);
    const entry: Seen = {
      name,
      parent: (parent && begun.get(parent)?.name) ?? null,
      attributes: { ...options.attributes },
      failed: false,
      ended: false,
    };
    seen.push(entry);
    const span = {
      setAttribute: (key: string, value: never) => void Object.assign(entry.attributes, { [key]: value }),
      setAttributes: (more: Attributes) => void Object.assign(entry.attributes, more),
      setStatus: ({ code }: { code: SpanStatusCode }) => {
        entry.failed = code === SpanStatusCode.ERROR;
      },
      recordException: () => undefined,
      isRecording: () => true,
      spanContext: () => ({ traceId: "1".repeat(32), spanId: "1".repeat(16), traceFlags: 1 }),
      end: () => {
        entry.ended = true;
      },
    } as unknown as Span;
    begun.set(span, entry);
    return span;
  };
  const startActiveSpan = (name: string, options: object, run: (span: Span) => unknown) => {
    const span = startSpan(name, options);
    return context.with(trace.setSpan(context.active(), span), () => run(span));
  };
  const storage = new AsyncLocalStorage<Context>();
  context.setGlobalContextManager({
    active: () => storage.getStore() ?? ROOT_CONTEXT,
    with: (active: Context, run: (...args: unknown[]) => unknown, self: unknown, ...args: unknown[]) =>
      storage.run(active, () => run.apply(self, args)),
    bind: (_: Context, target: unknown) => target,
    enable: () => undefined,
    disable: () => undefined,
  } as unknown as ContextManager);
  trace.setGlobalTracerProvider({ getTracer: () => ({ startSpan, startActiveSpan }) as never });
  return seen;
}
