/** The overviews of several gateways as one: counts are added, of times the worst is shown. */

import type { DashboardFleet, DashboardOverview, DashboardSlice } from "@sandlot/client";

type Gateway = DashboardFleet["gateways"][number];
type Latency = DashboardOverview["acquires"][string];

export interface FleetSums {
  readonly asked: number;
  readonly missing: readonly Gateway[];
  readonly limit: DashboardOverview["limit"];
  readonly pool: number;
  readonly poolHits: number;
  readonly poolMisses: Readonly<Record<string, number>>;
  readonly queued: number;
  readonly acquires: Readonly<Record<string, Latency>>;
  readonly execs: DashboardOverview["execs"];
  readonly losses: Readonly<Record<string, number>>;
  readonly refusals: DashboardOverview["refusals"];
}

export function sumsOf({ gateways }: DashboardFleet): FleetSums {
  const all = gateways.flatMap(({ overview }) => (overview === null ? [] : [overview]));
  const sum = (of: (overview: DashboardOverview) => number) => all.reduce((total, one) => total + of(one), 0);
  // Limit and pool are the fleet's, and the same in each gateway's configuration.
  const [first] = all;
  return {
    asked: all.length,
    missing: gateways.filter(({ overview }) => overview === null),
    limit: first?.limit ?? null,
    pool: Object.values(first?.pool ?? {}).reduce((total, count) => total + count, 0),
    poolHits: sum(({ poolHits }) => poolHits),
    poolMisses: added(all.map(({ poolMisses }) => poolMisses)),
    queued: sum(({ queued }) => queued),
    acquires: joined(all.map(({ acquires }) => acquires)),
    execs: {
      count: sum(({ execs }) => execs.count),
      failed: sum(({ execs }) => execs.failed),
      perSecond: sum(({ execs }) => execs.perSecond),
    },
    losses: added(all.map(({ losses }) => losses)),
    refusals: all.flatMap(({ refusals }) => refusals).sort((a, b) => b.at - a.at),
  };
}

/** Slices of the same time, of all gateways, the oldest first. */
export function slicesOf({ gateways }: DashboardFleet): readonly DashboardSlice[] {
  const byTime = new Map<number, DashboardSlice>();
  for (const slice of gateways.flatMap(({ overview }) => overview?.slices ?? [])) {
    const other = byTime.get(slice.at);
    byTime.set(slice.at, other === undefined ? slice : together(other, slice));
  }
  return [...byTime.values()].sort((a, b) => a.at - b.at);
}

function together(a: DashboardSlice, b: DashboardSlice): DashboardSlice {
  return {
    at: a.at,
    acquires: joined([a.acquires, b.acquires]),
    execs: a.execs + b.execs,
    created: a.created + b.created,
    stopped: a.stopped + b.stopped,
    lost: a.lost + b.lost,
    refused: a.refused + b.refused,
    memoryBytes: a.memoryBytes + b.memoryBytes,
    diskBytes: a.diskBytes + b.diskBytes,
  };
}

function added(all: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sums = new Map<string, number>();
  for (const [name, count] of all.flatMap((one) => Object.entries(one))) sums.set(name, (sums.get(name) ?? 0) + count);
  return Object.fromEntries(sums);
}

function joined(all: readonly Readonly<Record<string, Latency>>[]): Record<string, Latency> {
  const found = new Map<string, Latency>();
  for (const [path, latency] of all.flatMap((one) => Object.entries(one))) {
    const { count = 0, p50Ms = 0, p95Ms = 0 } = found.get(path) ?? {};
    found.set(path, {
      count: count + latency.count,
      p50Ms: Math.max(p50Ms, latency.p50Ms),
      p95Ms: Math.max(p95Ms, latency.p95Ms),
    });
  }
  return Object.fromEntries(found);
}
