/** Timelines of the target of a command: of a private fleet, or through a gateway. */

import type { SandlotClient } from "@sandlot/client";
import type { TimelineEntry } from "@sandlot/contract";
import type { Fleet, TimelineFilter } from "../fleet.ts";
import type { ThreadName } from "./target.ts";

export interface TargetTimeline {
  /** The newest entries, the oldest first. */
  read(name: ThreadName, query: TimelineFilter & { readonly limit: number }): Promise<Newest>;
  /** `null`: some were dropped. */
  follow(
    name: ThreadName,
    from: number,
    filter: TimelineFilter,
    signal: AbortSignal,
  ): AsyncIterable<TimelineEntry | null>;
  export(name: ThreadName, format: "html" | "json", signal: AbortSignal): Promise<Uint8Array>;
}

interface Newest {
  readonly entries: readonly TimelineEntry[];
  readonly end: number;
  readonly isWhole: boolean;
}

export function timelineOfFleet({ timeline }: Fleet): TargetTimeline {
  const keyOf = ({ thread, user }: ThreadName) => ({ thread, ...(user !== undefined && { user }) });
  return {
    read: (name, query) => timeline.read(keyOf(name), query),
    async *follow(name, from, filter, signal) {
      for await (const item of timeline.follow(keyOf(name), { ...filter, from, signal }))
        yield item.kind === "entry" ? item.entry : null;
    },
    async export(name, format) {
      const page = await timeline.read(keyOf(name), { limit: Number.POSITIVE_INFINITY });
      const about = { user: name.user ?? "default", thread: name.thread, exportedAt: Date.now() };
      const { timelineFile } = await import("../gateway/timeline/timeline-html.ts");
      const { systemWorld } = await import("../world/system-world.ts");
      return Buffer.from(await timelineFile(format, page, about, systemWorld()));
    },
  };
}

export function timelineOfGateway(gateway: SandlotClient): TargetTimeline {
  const of = ({ user }: ThreadName) => (user === undefined ? gateway : gateway.actingFor(user)).timeline;
  return {
    read: (name, query) => of(name).read(name.thread, query),
    follow: (name, from, filter, signal) => of(name).follow(name.thread, { ...filter, from, signal }),
    async export(name, format, signal) {
      return new Uint8Array(await (await of(name).export(name.thread, format, { signal })).arrayBuffer());
    },
  };
}
