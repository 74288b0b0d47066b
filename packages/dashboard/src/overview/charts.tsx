/** Six hours as bars. Each chart says in words what it shows, which is its name for a screen reader. */

import type { DashboardFleet, DashboardSlice } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { dashboard } from "../api.ts";
import { bytes, clock, duration } from "../format.ts";
import { texts } from "../texts.ts";
import { slicesOf } from "./fleet-sums.ts";

const t = texts.overview;
const SPAN_MS = 6 * 3_600_000;
const BARS = 144;
const WIDTH = 1_000;
const HEIGHT = 100;
/** As often as a slice ends. */
const AGAIN_MS = 10_000;

interface Chart {
  readonly name: string;
  of(slice: DashboardSlice): number;
  /** Counts are added in a bar, of others the highest is shown. */
  readonly isCount: boolean;
  words(value: number): string;
}

const number = (value: number) => value.toLocaleString("en");
const CHARTS: readonly Chart[] = [
  { name: t.chart.acquires, isCount: true, words: number, of: ({ acquires }) => sum(acquires) },
  { name: t.chart.execs, isCount: true, words: number, of: ({ execs }) => execs },
  { name: t.chart.p95, isCount: false, words: duration, of: ({ acquires }) => slowest(acquires) },
  { name: t.chart.lost, isCount: true, words: number, of: ({ lost }) => lost },
  { name: t.chart.refused, isCount: true, words: number, of: ({ refused }) => refused },
  { name: t.chart.memory, isCount: false, words: bytes, of: ({ memoryBytes }) => memoryBytes },
];

export function Charts() {
  const fleet = useQuery<DashboardFleet>({
    queryKey: ["history"],
    queryFn: () => dashboard.fleet(BARS),
    refetchInterval: AGAIN_MS,
  });
  if (fleet.data === undefined) return null;
  const slices = slicesOf(fleet.data);
  const from = Date.now() - SPAN_MS;
  return (
    <section className="card wide">
      <h2>{t.charts}</h2>
      <div className="charts">
        {CHARTS.map((chart) => (
          <BarChart key={chart.name} chart={chart} slices={slices} from={from} />
        ))}
      </div>
      <p className="soft">{t.chartAxis(clock(from))}</p>
    </section>
  );
}

function BarChart({
  chart: { name, of, isCount, words },
  slices,
  from,
}: {
  readonly chart: Chart;
  readonly slices: readonly DashboardSlice[];
  readonly from: number;
}) {
  const bars = new Array<number>(BARS).fill(0);
  for (const slice of slices) {
    const at = Math.min(BARS - 1, Math.floor(((slice.at - from) / SPAN_MS) * BARS));
    if (at >= 0) bars[at] = isCount ? (bars[at] ?? 0) + of(slice) : Math.max(bars[at] ?? 0, of(slice));
  }
  const top = Math.max(...bars);
  const total = bars.reduce((all, value) => all + value, 0);
  const text = isCount ? t.chartSum(name, words(total)) : t.chartNow(name, words(bars.at(-1) ?? 0), words(top));
  const step = WIDTH / BARS;
  const path = bars
    .map((value, at) => {
      const height = top === 0 ? 0 : (value / top) * (HEIGHT - 4);
      return height === 0 ? "" : `M${at * step + 0.5} ${HEIGHT}v${-height}h${step - 1}v${height}z`;
    })
    .join("");
  return (
    <figure>
      <figcaption>{text}</figcaption>
      <svg className="chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={text}>
        <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
        <path d={path} />
      </svg>
    </figure>
  );
}

function sum(acquires: DashboardSlice["acquires"]): number {
  return Object.values(acquires).reduce((total, { count }) => total + count, 0);
}

function slowest(acquires: DashboardSlice["acquires"]): number {
  return Math.max(0, ...Object.values(acquires).map(({ p95Ms }) => p95Ms));
}
