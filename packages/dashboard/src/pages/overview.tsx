/** The overview: for an operator the fleet, for another key its own sandboxes. */

import type { AuditReply, SandboxSummary } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { dashboard } from "../api.ts";
import { eventText } from "../event-words.ts";
import { clock, duration, short } from "../format.ts";
import { useLive } from "../live.tsx";
import { Charts } from "../overview/charts.tsx";
import { type FleetSums, sumsOf } from "../overview/fleet-sums.ts";
import { GatewaysCard } from "../overview/gateways-card.tsx";
import { ErrorNotice, Notice } from "../parts/notice.tsx";
import { RefusedHosts } from "../parts/refused-hosts.tsx";
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
  const fleet = useQuery({ queryKey: ["fleet"], queryFn: () => dashboard.fleet() });
  const audit = useQuery({ queryKey: ["audit"], queryFn: () => client.audit() });
  const sums = fleet.data === undefined ? null : sumsOf(fleet.data);
  return (
    <>
      {fleet.error !== null && <ErrorNotice error={fleet.error} retry={fleet.refetch} />}
      {audit.error !== null && <ErrorNotice error={audit.error} retry={audit.refetch} />}
      {sums !== null && sums.missing.length > 0 && (
        <Notice kind="warn">{t.missingGateways(sums.missing.length)}</Notice>
      )}
      {sums !== null && <Numbers sums={sums} sandboxes={sandboxes} audit={audit.data ?? null} />}
      <div className="cards">
        <StatesCard sandboxes={sandboxes} title={t.states} />
        {sums !== null && fleet.data !== undefined && (
          <>
            <AcquiresCard sums={sums} />
            <section className="card">
              <h2>{t.losses}</h2>
              <Counts counts={sums.losses} empty={t.noLosses} />
            </section>
            {Object.keys(sums.poolMisses).length > 0 && (
              <section className="card">
                <h2>{t.misses}</h2>
                <Counts counts={sums.poolMisses} words={t.missReasons} empty="" />
              </section>
            )}
            <RefusedHosts hosts={sums.refusals} empty={t.noRefusals} />
            <GatewaysCard gateways={fleet.data.gateways} />
          </>
        )}
        <Charts />
        <Feed />
      </div>
    </>
  );
}

function Numbers({
  sums,
  sandboxes,
  audit,
}: {
  readonly sums: FleetSums;
  readonly sandboxes: readonly SandboxSummary[] | null;
  readonly audit: AuditReply | null;
}) {
  const blanks = sandboxes?.filter(({ state }) => state === "blank").length ?? 0;
  const { limit, execs, pool, poolHits } = sums;
  const misses = Object.values(sums.poolMisses).reduce((all, count) => all + count, 0);
  const count = sandboxes?.length ?? 0;
  return (
    <dl className="numbers">
      <div>
        <dt>{t.capacity}</dt>
        <dd className="words">
          {limit === null ? t.noLimit(count) : t.ofLimit(count, limit.max, limit.mode)}
          {limit !== null && <meter min={0} max={limit.max} value={count} aria-label={t.capacity} />}
        </dd>
      </div>
      <div>
        <dt>{t.queued}</dt>
        <dd>{sums.queued}</dd>
      </div>
      <div>
        <dt>{t.commands}</dt>
        <dd className="words">
          {t.commandsText(execs.perSecond)}
          <small className="soft">{t.commandsCount(execs.count, execs.failed)}</small>
        </dd>
      </div>
      <div>
        <dt>{t.pool}</dt>
        <dd className="words">
          {pool === 0 ? t.noPool : t.poolText(blanks, pool)}
          {pool > 0 && <small className="soft">{t.poolHits(poolHits, misses)}</small>}
        </dd>
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

function AcquiresCard({ sums: { acquires, asked } }: { readonly sums: FleetSums }) {
  const paths = Object.entries(acquires);
  return (
    <section className="card">
      <h2>{t.acquires}</h2>
      <p className="soft">{t.acquiresHint(asked)}</p>
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

function Counts({
  counts,
  words = {},
  empty,
}: {
  readonly counts: Readonly<Record<string, number>>;
  readonly words?: Readonly<Record<string, string>>;
  readonly empty: string;
}) {
  const entries = Object.entries(counts);
  if (entries.length === 0) return <p className="soft">{empty}</p>;
  return (
    <dl className="facts">
      {entries.map(([name, count]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{words[name] ?? short(name)}</dt>
          <dd>{count}</dd>
        </div>
      ))}
    </dl>
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
