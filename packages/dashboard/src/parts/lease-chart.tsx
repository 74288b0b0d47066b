/** Leases over six hours, as bars; the sum in words is its name for a screen reader. */

import type { DashboardSlice } from "@sandlot/client";
import { clock } from "../format.ts";
import { texts } from "../texts.ts";

const SPAN_MS = 6 * 3_600_000;
const BARS = 144;
const WIDTH = 1_000;
const HEIGHT = 100;

export function LeaseChart({ slices }: { readonly slices: readonly DashboardSlice[] }) {
  const from = Date.now() - SPAN_MS;
  const bars = new Array<number>(BARS).fill(0);
  for (const { at, acquires } of slices) {
    const index = Math.min(BARS - 1, Math.floor(((at - from) / SPAN_MS) * BARS));
    const count = Object.values(acquires).reduce((sum, path) => sum + path.count, 0);
    if (index >= 0) bars[index] = (bars[index] ?? 0) + count;
  }
  const top = Math.max(1, ...bars);
  const sum = bars.reduce((all, count) => all + count, 0);
  const step = WIDTH / BARS;
  return (
    <>
      <svg
        className="chart"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={texts.overview.historySummary(sum)}
      >
        <title>{texts.overview.historySummary(sum)}</title>
        <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
        {bars.map((count, index) => {
          const height = (count / top) * (HEIGHT - 4);
          // biome-ignore lint/suspicious/noArrayIndexKey: a bar is its place
          return <rect key={index} x={index * step + 0.5} y={HEIGHT - height} width={step - 1} height={height} />;
        })}
      </svg>
      <p className="soft">
        {texts.overview.historyAxis(clock(from))}. {texts.overview.historySummary(sum)}.
      </p>
    </>
  );
}
