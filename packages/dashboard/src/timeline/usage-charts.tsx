/**
 * What the sandbox uses, live: processor, memory, disk, processes and network of the last five minutes. Looking takes no
 * lease, so an open page keeps no sandbox alive; one that nothing holds has no figures, and its lines have a gap.
 */

import type { SandlotClient, UsageSample } from "@sandlot/client";
import { useEffect, useState } from "react";
import { bytes } from "../format.ts";
import { texts } from "../texts.ts";

const t = texts.usage;
const SPAN_MS = 300_000;
const WIDTH = 300;
const HEIGHT = 64;

interface Point {
  readonly at: number;
  /** `null`: there was no figure. */
  readonly value: number | null;
}

interface Series {
  readonly name: keyof typeof t.names;
  readonly points: readonly Point[];
  /** The limit, where there is one. */
  readonly max: number | null;
  readonly text: (value: number) => string;
}

export function UsageCharts({ client, thread }: { readonly client: SandlotClient; readonly thread: string }) {
  const samples = useSamples(client, thread);
  const last = samples.at(-1);
  return (
    <section className="card wide" aria-labelledby="usage">
      <h2 id="usage">{t.title}</h2>
      <p className="soft">{last === undefined ? texts.loading : last.usage === null ? t.none : t.hint}</p>
      <div className="usages">
        {seriesOf(samples).map((series) => (
          <Chart key={series.name} {...series} />
        ))}
      </div>
    </section>
  );
}

function useSamples(client: SandlotClient, thread: string): readonly UsageSample[] {
  const [samples, setSamples] = useState<readonly UsageSample[]>([]);
  useEffect(() => {
    const ended = new AbortController();
    setSamples([]);
    const run = async () => {
      for await (const sample of client.timeline.usage(thread, { signal: ended.signal }))
        setSamples((before) => [...before.filter(({ at }) => at > sample.at - SPAN_MS), sample]);
    };
    // A thread that is gone, or lives elsewhere, is told by the rest of the page.
    run().catch(() => undefined);
    return () => ended.abort();
  }, [client, thread]);
  return samples;
}

function Chart({ name, points, max, text }: Series) {
  const values = points.flatMap(({ value }) => value ?? []);
  const now = points.at(-1)?.value ?? null;
  const top = Math.max(1e-9, ...values) * 1.15;
  const until = points.at(-1)?.at ?? 0;
  const summary = now === null ? t.unknown : t.now(text(now), max === null ? null : text(max));
  return (
    <figure className="usage">
      <figcaption>
        {t.names[name]} <strong>{summary}</strong>
      </figcaption>
      <svg
        className="chart"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={t.label(t.names[name], summary)}
      >
        <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
        {linesOf(points).map((line) => (
          <polyline
            key={line[0]?.at}
            points={line
              .map(({ at, value }) => `${x(at, until)},${HEIGHT - 2 - (value / top) * (HEIGHT - 4)}`)
              .join(" ")}
          />
        ))}
      </svg>
    </figure>
  );
}

function x(at: number, until: number): number {
  return WIDTH - ((until - at) / SPAN_MS) * WIDTH;
}

/** A line ends where there is no figure. */
function linesOf(points: readonly Point[]): readonly (readonly { readonly at: number; readonly value: number }[])[] {
  const lines: { at: number; value: number }[][] = [[]];
  for (const { at, value } of points)
    if (value === null) lines.push([]);
    else lines.at(-1)?.push({ at, value });
  return lines.filter(({ length }) => length > 0);
}

function seriesOf(samples: readonly UsageSample[]): readonly Series[] {
  const last = samples.findLast(({ usage }) => usage !== null)?.usage ?? null;
  const of = (value: (usage: NonNullable<UsageSample["usage"]>) => number | null | undefined): readonly Point[] =>
    samples.map(({ at, usage }) => ({ at, value: usage === null ? null : (value(usage) ?? null) }));
  const whole = (value: number) => String(Math.round(value));
  const speed = (value: number) => `${bytes(value)}/s`;
  const percent = (value: number) => `${Math.round(value * 100)} %`;
  return [
    {
      name: "cpu",
      points: rates(of(({ cpuMs }) => (cpuMs === null ? null : cpuMs / 1_000))),
      max: null,
      text: percent,
    },
    { name: "memory", points: of(({ memoryBytes }) => memoryBytes), max: last?.memoryMaxBytes ?? null, text: bytes },
    { name: "disk", points: of(({ diskBytes }) => diskBytes), max: last?.diskMaxBytes ?? null, text: bytes },
    { name: "processes", points: of(({ processCount }) => processCount), max: last?.processMax ?? null, text: whole },
    { name: "received", points: rates(of(({ networkReceivedBytes }) => networkReceivedBytes)), max: null, text: speed },
    { name: "sent", points: rates(of(({ networkSentBytes }) => networkSentBytes)), max: null, text: speed },
  ];
}

/** What a counter grew by, each second. A smaller one is another sandbox's. */
function rates(points: readonly Point[]): readonly Point[] {
  return points.slice(1).map(({ at, value }, index) => {
    const before = points[index];
    if (before === undefined || before.value === null || value === null || value < before.value)
      return { at, value: null };
    return { at, value: ((value - before.value) * 1_000) / Math.max(1, at - before.at) };
  });
}
