/** The timelines of threads through a gateway: what happened, a page at a time, or as it happens. */

import type { TimelineEntry, TimelineKind, TimelinePage, UsageSample } from "@sandlot/contract";
import { around, pause } from "./wire/clock.ts";
import { errorOfEvent, isBreak } from "./wire/errors.ts";
import { serverEvents } from "./wire/events.ts";
import type { Query, Transport } from "./wire/transport.ts";

export interface TimelineFilter {
  readonly kinds?: readonly TimelineKind[];
  /** Milliseconds since 1970. */
  readonly since?: number;
  readonly until?: number;
}

export interface TimelineRange extends TimelineFilter {
  /** Entries from this offset on. Without it, the newest. */
  readonly from?: number;
  /** The newest entries before this offset. */
  readonly before?: number;
  readonly limit?: number;
  readonly signal?: AbortSignal;
}

/** Building schemas takes longer than most calls of a client, which need none of these. */
const schemas = () => import("./timeline-schemas.ts");

export class ClientTimeline {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async read(thread: string, { signal, from, before, limit, ...filter }: TimelineRange = {}): Promise<TimelinePage> {
    const { timelinePageSchema } = await schemas();
    const range = {
      ...(from !== undefined && { from }),
      ...(before !== undefined && { before }),
      ...(limit !== undefined && { limit }),
    };
    const query: Query = { ...queryOf(filter), ...range };
    return this.#transport.json(timelinePageSchema, {
      ...{ method: "GET", path: pathOf(thread, "timeline"), query, signal, repeatable: true },
    });
  }

  /** Entries as they come, after a break too. `null` where some were dropped before they were read. */
  async *follow(
    thread: string,
    { signal, from, ...filter }: TimelineFilter & { readonly from?: number; readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<TimelineEntry | null> {
    const { timelineEntrySchema } = await schemas();
    let start = from;
    const path = pathOf(thread, "timeline", "stream");
    // Otherwise an entry that comes while a broken connection is replaced would be missed.
    start ??= (await this.read(thread, { limit: 1, ...(signal !== undefined && { signal }) })).end;
    for await (const { event, data } of this.#events(
      () => ({ path, query: { ...queryOf(filter), from: start ?? 0 } }),
      signal,
    )) {
      if (event === "gap") yield null;
      if (event !== "entry") continue;
      const entry = timelineEntrySchema.parse(data);
      start = entry.offset + 1;
      yield entry;
    }
  }

  /** One file: a page without scripts, or JSON. */
  async export(
    thread: string,
    format: "html" | "json",
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<Blob> {
    const path = pathOf(thread, "timeline", "export");
    const response = await this.#transport.send({ method: "GET", path, query: { format }, signal });
    return response.blob();
  }

  /** What the thread's sandbox uses, every two seconds, without holding it. */
  async *usage(thread: string, { signal }: { readonly signal?: AbortSignal } = {}): AsyncGenerator<UsageSample> {
    const { usageSampleSchema } = await schemas();
    const path = pathOf(thread, "usage", "stream");
    for await (const { event, data } of this.#events(() => ({ path, query: {} }), signal))
      if (event === "usage") yield usageSampleSchema.parse(data);
  }

  /** The events of a stream that begins again after a break. */
  async *#events(call: () => { readonly path: string; readonly query: Query }, signal: AbortSignal | undefined) {
    let begun = false;
    for (let silent = 0; ; silent += 1) {
      try {
        const response = await this.#transport.stream({ method: "GET", ...call(), signal, repeatable: true });
        begun = true;
        for await (const item of serverEvents(response, this.#transport.url)) {
          silent = 0;
          if (item.event === "error") throw errorOfEvent(item.data, this.#transport.url);
          yield item;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (!begun || !isBreak(error)) throw error;
      }
      await pause(around(100 * 2 ** Math.min(silent, 5)), signal);
    }
  }
}

function queryOf({ kinds, since, until }: TimelineFilter): Query {
  return {
    ...(kinds !== undefined && { kind: kinds.join(",") }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  };
}

function pathOf(thread: string, ...parts: readonly string[]): string {
  return `/v1/threads/${[thread, ...parts].map(encodeURIComponent).join("/")}`;
}
