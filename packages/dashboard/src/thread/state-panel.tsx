/** Why a thread's sandbox is as it is: the explanation in words, its holders, its times, and what happened to it. */

import { type ExplanationReply, isSandlotError, type SandboxSummary, type SandlotClient } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { eventText } from "../event-words.ts";
import { ageOf, dateTime, moment, short } from "../format.ts";
import { useNow } from "../live.tsx";
import { ErrorNotice } from "../parts/notice.tsx";
import { RefusedHosts, refusedIn } from "../parts/refused-hosts.tsx";
import { texts } from "../texts.ts";
import { UsageCharts } from "../timeline/usage-charts.tsx";

const t = texts.thread;

export function StatePanel({
  client,
  user,
  thread,
  sandbox,
}: {
  readonly client: SandlotClient;
  readonly user: string;
  readonly thread: string;
  readonly sandbox: SandboxSummary | null;
}) {
  const explanation = useQuery({
    queryKey: ["explain", user, thread],
    queryFn: async () => {
      try {
        return await client.explainThread(thread);
      } catch (error) {
        // Nothing is known of a thread that has had no sandbox in this process's time.
        if (isSandlotError(error, "sandbox_not_found") || isSandlotError(error, "thread_not_found")) return null;
        throw error;
      }
    },
  });
  if (explanation.error !== null) return <ErrorNotice error={explanation.error} retry={explanation.refetch} />;
  if (explanation.data === undefined) return <p className="empty">{texts.loading}</p>;
  const data = explanation.data;
  return (
    <div className="cards">
      <section className="card wide">
        <h2>{t.why}</h2>
        <p>{data === null ? t.noSandbox : short(data.summary, 1_000)}</p>
        {data !== null && <Ends data={data} />}
        {data !== null && <Holders data={data} />}
      </section>
      {data !== null && <Facts data={data} sandbox={sandbox} />}
      {sandbox !== null && <UsageCharts client={client} thread={thread} />}
      {data !== null && refusedIn(data.history).length > 0 && (
        <RefusedHosts hosts={refusedIn(data.history)} empty={texts.none} />
      )}
      {data !== null && <History data={data} />}
    </div>
  );
}

/** What will end it, in a sentence. */
function Ends({ data: { ends, state } }: { readonly data: ExplanationReply }) {
  const now = useNow();
  if (state === "absent" || state === "stopping") return null;
  return (
    <p>
      {ends === null
        ? t.endsNever
        : t.endsSentence(texts.reasons[ends.reason] ?? short(ends.reason), moment(ends.at, now))}
    </p>
  );
}

function Holders({ data: { holders } }: { readonly data: ExplanationReply }) {
  const now = useNow();
  if (holders.length === 0) return <p className="soft">{t.noHolders}</p>;
  return (
    <table className="plain">
      <caption className="soft" style={{ textAlign: "left" }}>
        {t.holders}
      </caption>
      <thead>
        <tr>
          <th>{t.holderColumns.who}</th>
          <th>{t.holderColumns.purpose}</th>
          <th>{t.holderColumns.since}</th>
        </tr>
      </thead>
      <tbody>
        {holders.map(({ who, purpose, since }) => (
          <tr key={`${who} ${purpose} ${since}`}>
            <td>
              <code>{short(who, 60)}</code>
            </td>
            <td>{short(purpose)}</td>
            <td>{ageOf(since, now)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Facts({ data, sandbox }: { readonly data: ExplanationReply; readonly sandbox: SandboxSummary | null }) {
  const now = useNow();
  const { ends, stopped } = data;
  const facts: readonly (readonly [string, React.ReactNode])[] = [
    [t.fact.sandbox, <code key="id">{short(data.sandboxId)}</code>],
    ...(sandbox === null
      ? []
      : ([
          [t.fact.blueprint, short(sandbox.blueprint)],
          [t.fact.engine, short(sandbox.engine ?? sandbox.backend)],
          [t.fact.generation, sandbox.generation],
          [t.fact.created, `${dateTime(sandbox.createdAt)} (${moment(sandbox.createdAt, now)})`],
          ...(sandbox.parkedAt === null ? [] : ([[t.fact.parked, moment(sandbox.parkedAt, now)]] as const)),
        ] as const)),
    ...(ends === null ? [] : ([[t.fact.ends, t.endsText(ends.reason, moment(ends.at, now))]] as const)),
    ...(stopped === null
      ? []
      : ([
          [
            t.fact.stopped,
            t.stoppedText(stopped.reason, stopped.at === null ? texts.unknown : moment(stopped.at, now)),
          ],
        ] as const)),
  ];
  return (
    <section className="card">
      <h2>{t.facts}</h2>
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function History({ data: { history } }: { readonly data: ExplanationReply }) {
  const newest = [...history].reverse();
  return (
    <section className="card wide">
      <h2 id="history">{t.history}</h2>
      <p className="soft">{t.historyHint}</p>
      {newest.length === 0 ? (
        <p className="soft">{t.noHistory}</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard
        <ul className="feed" tabIndex={0} aria-labelledby="history">
          {newest.map((event, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: two events may be alike
            <li key={`${event.at} ${event.type} ${newest.length - index}`}>
              <time title={dateTime(event.at)}>{dateTime(event.at)}</time>
              <span>{eventText(event)}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
