/**
 * The timeline of a thread: what happened, the newest first, as it happens. Only the rows in view are in the page.
 *
 * Every text in an entry may come from a sandbox: rows have one height and cut what does not fit.
 */

import {
  type SandboxSummary,
  type SandlotClient,
  summaryOf,
  TIMELINE_KINDS,
  type TimelineEntry,
} from "@sandlot/client";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState } from "react";
import { clock, dateTime, short } from "../format.ts";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { texts } from "../texts.ts";
import { EntryDetails } from "./entry-details.tsx";
import { useTimeline } from "./use-timeline.ts";

const t = texts.timeline;
const ROW_PX = 34;

export function TimelinePanel({
  client,
  thread,
  sandbox,
}: {
  readonly client: SandlotClient;
  readonly thread: string;
  readonly sandbox: SandboxSummary | null;
}) {
  const timeline = useTimeline(client, thread);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [chosen, setChosen] = useState<number | null>(null);
  const rows = useMemo(() => rowsOf(timeline.entries, hidden), [timeline.entries, hidden]);
  const entry = rows.find(({ offset }) => offset === chosen) ?? null;
  const present = useMemo(() => new Set<string>(timeline.entries.map(({ kind }) => kind)), [timeline.entries]);

  if (timeline.error !== null) return <ErrorNotice error={timeline.error} retry={timeline.again} />;
  return (
    <section aria-labelledby="timeline">
      <div className="head">
        <h2 id="timeline">{t.title}</h2>
        <span className="badge">{t.count(rows.length, timeline.entries.length)}</span>
        <div className="push">
          <ExportButton client={client} thread={thread} format="html" />
          <ExportButton client={client} thread={thread} format="json" />
        </div>
      </div>
      <fieldset className="kinds">
        <legend className="soft">{t.filter}</legend>
        {TIMELINE_KINDS.filter((kind) => present.has(kind)).map((kind) => (
          <label key={kind}>
            <input
              type="checkbox"
              checked={!hidden.has(kind)}
              onChange={(event) => setHidden(toggled(hidden, kind, !event.target.checked))}
            />
            {t.kinds[kind] ?? kind}
          </label>
        ))}
      </fieldset>
      {timeline.isMissingSome && <Notice kind="warn">{t.gap}</Notice>}
      {rows.length === 0 ? (
        <p className="empty">{timeline.isLoading ? texts.loading : present.size === 0 ? t.empty : t.noMatch}</p>
      ) : (
        <Rows rows={rows} chosen={chosen} onChoose={setChosen} />
      )}
      <p className="soft">
        {timeline.hasEarlier ? (
          <button type="button" onClick={timeline.earlier} disabled={timeline.isLoading}>
            {t.earlier}
          </button>
        ) : timeline.isWhole ? (
          t.beginning
        ) : (
          t.dropped
        )}
      </p>
      {entry !== null && (
        <EntryDetails client={client} thread={thread} sandbox={sandbox} entry={entry} onClose={() => setChosen(null)} />
      )}
    </section>
  );
}

function Rows({
  rows,
  chosen,
  onChoose,
}: {
  readonly rows: readonly TimelineEntry[];
  readonly chosen: number | null;
  onChoose(offset: number): void;
}) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    getItemKey: (index) => rows[index]?.offset ?? index,
  });
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard
    <section className="timeline" ref={scroller} tabIndex={0} aria-label={t.list}>
      <ol style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map(({ index, key, start }) => {
          const entry = rows[index];
          if (entry === undefined) return null;
          return (
            <li
              key={key}
              style={{ transform: `translateY(${start}px)` }}
              aria-setsize={rows.length}
              aria-posinset={index + 1}
            >
              <button
                type="button"
                className={isBad(entry) ? "bad" : ""}
                aria-expanded={entry.offset === chosen}
                onClick={() => onChoose(entry.offset)}
              >
                <time title={dateTime(entry.at)}>{clock(entry.at)}</time>
                <span className="kind">{t.kinds[entry.kind] ?? short(entry.kind, 20)}</span>
                <span className="what">{short(summaryOf(entry), 400)}</span>
              </button>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

function ExportButton({
  client,
  thread,
  format,
}: {
  readonly client: SandlotClient;
  readonly thread: string;
  readonly format: "html" | "json";
}) {
  const [state, setState] = useState<"busy" | { readonly error: unknown } | null>(null);
  const save = async () => {
    setState("busy");
    try {
      const url = URL.createObjectURL(await client.timeline.export(thread, format));
      const link = Object.assign(document.createElement("a"), { href: url, download: `timeline-${thread}.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
      setState(null);
    } catch (error) {
      setState({ error });
    }
  };
  return (
    <>
      <button type="button" disabled={state === "busy"} onClick={() => void save()}>
        {t.export[format]}
      </button>
      {state !== null && state !== "busy" && <ErrorNotice error={state.error} />}
    </>
  );
}

/** The newest first. A command that has ended is one row, not two. */
function rowsOf(entries: readonly TimelineEntry[], hidden: ReadonlySet<string>): readonly TimelineEntry[] {
  const ended = new Set(
    entries.flatMap(({ kind, what, facts }) => (kind === "command" && what === "ended" ? [facts.id] : [])),
  );
  return entries
    .filter(({ kind, what, facts }) => !hidden.has(kind) && !(what === "started" && ended.has(facts.id ?? null)))
    .reverse();
}

function toggled(all: ReadonlySet<string>, one: string, isIn: boolean): ReadonlySet<string> {
  const next = new Set(all);
  if (isIn) next.add(one);
  else next.delete(one);
  return next;
}

function isBad({ kind, facts }: TimelineEntry): boolean {
  if (["crash", "limit", "refused", "lost"].includes(kind)) return true;
  return kind === "command" && typeof facts.exitCode === "number" && facts.exitCode !== 0;
}
