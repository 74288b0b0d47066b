/** Every thread that the key may see, with and without a sandbox. */

import type { ThreadSummary } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { Confirm, type Question } from "../parts/confirm.tsx";
import type { Column } from "../parts/data-table.tsx";
import { ListPage } from "../parts/list-page.tsx";
import { ErrorNotice } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state-badge.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";
import { Age } from "./sandboxes.tsx";

const t = texts.threads;
const STATES = ["none", "creating", "leased", "parked", "stopping"];
const textOf = ({ user, thread }: ThreadSummary) => `${thread} ${user}`;
const stateOf = ({ sandbox }: ThreadSummary) => sandbox?.state ?? "none";
const rowKey = ({ user, thread }: ThreadSummary) => `${user}/${thread}`;

export function ThreadsPage() {
  const search = useSearch({ from: "/threads" });
  const { client, clientOf } = useSession();
  const threads = useQuery({ queryKey: ["threads"], queryFn: () => client.listThreads() });
  const [question, setQuestion] = useState<Question | null>(null);
  const columns = useMemo<readonly Column<ThreadSummary>[]>(() => {
    const ask = (kind: "stop" | "purge", { user, thread }: ThreadSummary) => {
      const { title, text, button } = texts.actions[kind];
      const own = clientOf(user);
      const act = (force: boolean) =>
        kind === "stop" ? own.stopThread(thread, { force }) : own.deleteThread(thread, { force });
      setQuestion({ title: title(thread), text, button, mayBeInUse: true, act });
    };
    return [
      {
        name: "thread",
        title: t.columns.thread,
        width: "minmax(12rem, 2fr)",
        order: ({ thread }) => thread,
        cell: ({ user, thread }) => (
          <Link to="/threads/$user/$thread" params={{ user, thread }}>
            {thread}
          </Link>
        ),
      },
      {
        name: "user",
        title: t.columns.user,
        width: "minmax(8rem, 1fr)",
        order: ({ user }) => user,
        cell: ({ user }) => user,
      },
      {
        name: "state",
        title: t.columns.state,
        width: "10rem",
        order: stateOf,
        cell: ({ sandbox }) =>
          sandbox === null ? <span className="soft">{t.noSandbox}</span> : <StateBadge state={sandbox.state} />,
      },
      {
        name: "age",
        title: t.columns.age,
        width: "9rem",
        order: ({ sandbox }) => -(sandbox?.createdAt ?? 0),
        cell: ({ sandbox }) => (sandbox === null ? "–" : <Age since={sandbox.createdAt} />),
      },
      {
        name: "actions",
        title: t.columns.actions,
        width: "12rem",
        cell: (row) => (
          <span className="actions">
            {row.sandbox !== null && (
              <button
                type="button"
                aria-label={`${texts.sandboxes.stop} ${row.thread}`}
                onClick={() => ask("stop", row)}
              >
                {texts.sandboxes.stop}
              </button>
            )}
            <button
              type="button"
              className="danger"
              aria-label={`${t.remove} ${row.thread}`}
              onClick={() => ask("purge", row)}
            >
              {t.remove}
            </button>
          </span>
        ),
      },
    ];
  }, [clientOf]);
  return (
    <>
      {threads.error !== null && <ErrorNotice error={threads.error} retry={threads.refetch} />}
      <ListPage
        title={t.title}
        to="/threads"
        search={search}
        rows={threads.data ?? null}
        columns={columns}
        filterLabel={t.filter}
        empty={t.empty}
        emptyHint={texts.sandboxes.emptyHint}
        noMatch={t.noMatch}
        states={STATES}
        initialSort={{ by: "thread", isDown: false }}
        rowKey={rowKey}
        textOf={textOf}
        stateOf={stateOf}
      />
      <Confirm
        question={question}
        onDone={(happened) => {
          setQuestion(null);
          if (happened) void threads.refetch();
        }}
      />
    </>
  );
}
