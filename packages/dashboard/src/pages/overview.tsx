/** The overview: for an operator the fleet, for another key its own sandboxes. */

import type { AuditReply, DashboardOverview, SandboxSummary } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { dashboard } from "../api.ts";
import { eventText } from "../event-words.ts";
import { clock, duration, short } from "../format.ts";
import { useLive } from "../live.tsx";
import { LeaseChart } from "../parts/lease-chart.tsx";
import { ErrorNotice } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state-badge.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";

const t = texts.overview;
const STATES = ["leased", "parked", "blank", "creating", "stopping"];

export function OverviewPage() {
  const { client, isOperator } = useSession();
  const sandboxes = useQuery({ queryKey: ["sandboxes"], queryFn: () => client.listSandboxes() });
  return (
    <>
      <div className="head">
        <h1>{t.title}</h1>
      </div>
      {sandboxes.error !== null && <ErrorNotice error={sandboxes.error} retry={sandboxes.refetch} />}
      {isOperator ? <FleetCards sandboxes={sandboxes.data ?? null} /> : <OwnCards sandboxes={sandboxes.data ?? null} />}
    </>
  );
}

function OwnCards({ sandboxes }: { readonly sandboxes: readonly SandboxSummary[] | null }) {
  return (
    <div className="cards">
      <StatesCard sandboxes={sandboxes} title={t.yours} />
      <Feed />
    </div>
  );
}

function FleetCards({ sandboxes }: { readonly sandboxes: readonly SandboxSummary[] | null }) {
  const { client } = useSession();
  const overview = useQuery({ queryKey: ["overview"], queryFn: () => dashboard.overview() });
  const audit = useQuery({ queryKey: ["audit"], queryFn: () => client.audit() });
  const data = overview.data ?? null;
  return (
    <>
      {overview.error !== null && <ErrorNotice error={overview.error} retry={overview.refetch} />}
      {audit.error !== null && <ErrorNotice error={audit.error} retry={audit.refetch} />}
      {data !== null && <Numbers data={data} sandboxes={sandboxes} audit={audit.data ?? null} />}
      <div className="cards">
        <StatesCard sandboxes={sandboxes} title={t.states} />
        {data !== null && (
          <>
            <AcquiresCard data={data} />
            <section className="card">
              <h2>{t.losses}</h2>
              <Counts counts={data.losses} empty={t.noLosses} />
            </section>
            <Refusals data={data} />
            <section className="card">
              <h2>{t.gateways}</h2>
              <ul className="feed">
                {data.gateways.map(({ instance, address, isSelf }) => (
                  <li key={instance}>
                    <code>{short(instance, 40)}</code>
                    <span className="soft">{isSelf ? t.self : (address ?? t.noAddress)}</span>
                  </li>
                ))}
              </ul>
            </section>
            <section className="card wide">
              <h2>{t.history}</h2>
              <LeaseChart slices={data.slices} />
            </section>
          </>
        )}
        <Feed />
      </div>
    </>
  );
}

function Numbers({
  data,
  sandboxes,
  audit,
}: {
  readonly data: DashboardOverview;
  readonly sandboxes: readonly SandboxSummary[] | null;
  readonly audit: AuditReply | null;
}) {
  const blanks = sandboxes?.filter(({ state }) => state === "blank").length ?? 0;
  const wanted = Object.values(data.pool).reduce((sum, count) => sum + count, 0);
  const { limit } = data;
  const count = sandboxes?.length ?? 0;
  return (
    <dl className="numbers">
      <div>
        <dt>{t.capacity}</dt>
        <dd className="words">{limit === null ? t.noLimit(count) : t.ofLimit(count, limit.max, limit.mode)}</dd>
      </div>
      <div>
        <dt>{t.queued}</dt>
        <dd>{data.queued}</dd>
      </div>
      <div>
        <dt>{t.pool}</dt>
        <dd className="words">{wanted === 0 ? t.noPool : t.poolText(blanks, wanted)}</dd>
      </div>
      <div>
        <dt>{t.streams}</dt>
        <dd>{data.openStreams}</dd>
      </div>
      <div>
        <dt>{t.audit}</dt>
        <dd className="words">{audit === null ? texts.unknown : <AuditBadge audit={audit} />}</dd>
      </div>
    </dl>
  );
}

function AuditBadge({ audit: { consistent, findings } }: { readonly audit: AuditReply }) {
  if (consistent === null) return <span className="badge warn">{t.notCompared}</span>;
  if (consistent) return <span className="badge good">{t.consistent}</span>;
  return (
    <details>
      <summary>
        <span className="badge bad">{t.findings(findings.length)}</span>
      </summary>
      <ul>
        {findings.slice(0, 50).map(({ problem }) => (
          <li key={problem}>{short(problem, 500)}</li>
        ))}
      </ul>
    </details>
  );
}

function StatesCard({
  sandboxes,
  title,
}: {
  readonly sandboxes: readonly SandboxSummary[] | null;
  readonly title: string;
}) {
  return (
    <section className="card">
      <h2>{title}</h2>
      {sandboxes === null ? (
        <p className="soft">{texts.loading}</p>
      ) : (
        <table className="plain">
          <thead>
            <tr>
              <th>{texts.sandboxes.columns.state}</th>
              <th className="number">{t.columns.count}</th>
            </tr>
          </thead>
          <tbody>
            {STATES.map((state) => (
              <tr key={state}>
                <td>
                  <Link to="/sandboxes" search={{ state }}>
                    <StateBadge state={state} />
                  </Link>
                </td>
                <td className="number">{sandboxes.filter((one) => one.state === state).length}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function AcquiresCard({ data: { acquires } }: { readonly data: DashboardOverview }) {
  const paths = Object.entries(acquires);
  return (
    <section className="card">
      <h2>{t.acquires}</h2>
      <p className="soft">{t.acquiresHint}</p>
      {paths.length === 0 ? (
        <p className="soft">{t.noAcquires}</p>
      ) : (
        <table className="plain">
          <thead>
            <tr>
              <th>{t.columns.path}</th>
              <th className="number">{t.columns.count}</th>
              <th className="number">{t.columns.p50}</th>
              <th className="number">{t.columns.p95}</th>
            </tr>
          </thead>
          <tbody>
            {paths.map(([path, { count, p50Ms, p95Ms }]) => (
              <tr key={path}>
                <td>{t.paths[path] ?? path}</td>
                <td className="number">{count}</td>
                <td className="number">{duration(p50Ms)}</td>
                <td className="number">{duration(p95Ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Counts({ counts, empty }: { readonly counts: Readonly<Record<string, number>>; readonly empty: string }) {
  const entries = Object.entries(counts);
  if (entries.length === 0) return <p className="soft">{empty}</p>;
  return (
    <dl className="facts">
      {entries.map(([name, count]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{short(name)}</dt>
          <dd>{count}</dd>
        </div>
      ))}
    </dl>
  );
}

function Refusals({ data: { refusals } }: { readonly data: DashboardOverview }) {
  const [copied, setCopied] = useState<string | null>(null);
  return (
    <section className="card">
      <h2>{t.refusals}</h2>
      {refusals.length === 0 ? (
        <p className="soft">{t.noRefusals}</p>
      ) : (
        <ul className="feed">
          {refusals.map(({ host, port, rule, count }) => {
            // As in network.allow of a blueprint.
            const allowing = `- { host: ${JSON.stringify(host)}, ports: [${port}] }`;
            return (
              <li key={`${host}:${port} ${rule}`}>
                <span>{t.refusal(short(host), port, count)}</span>
                <button
                  type="button"
                  title={t.copyRule}
                  onClick={() => navigator.clipboard.writeText(allowing).then(() => setCopied(allowing))}
                >
                  {copied === allowing ? texts.copied : texts.copy}
                </button>
              </li>
            );
          })}
        </ul>
      )}
    </section>
  );
}

function Feed() {
  const { events } = useLive();
  return (
    <section className="card wide">
      <h2 id="feed">{t.happening}</h2>
      {events.length === 0 ? (
        <p className="soft">{t.nothingYet}</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard
        <ul className="feed" tabIndex={0} aria-labelledby="feed">
          {events.slice(0, 100).map(({ serial, event }) => (
            <li key={serial}>
              <time>{clock(event.at)}</time>
              <span>{eventText(event as unknown as Readonly<Record<string, unknown>>)}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
