/** Every sandbox that the key may see. */

import type { SandboxSummary } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { ageOf, short } from "../format.ts";
import { useNow } from "../live.tsx";
import { Confirm, type Question } from "../parts/confirm.tsx";
import type { Column } from "../parts/data-table.tsx";
import { ListPage } from "../parts/list-page.tsx";
import { ErrorNotice } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state-badge.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";

const t = texts.sandboxes;
const STATES = ["creating", "leased", "parked", "blank", "stopping"];
const textOf = ({ sandboxId, thread, user, blueprint, engine }: SandboxSummary) =>
  [sandboxId, thread, user, blueprint, engine].join(" ");
const stateOf = ({ state }: SandboxSummary) => state;
const rowKey = ({ sandboxId }: SandboxSummary) => sandboxId;

export function SandboxesPage() {
  const search = useSearch({ from: "/sandboxes" });
  const { client } = useSession();
  const sandboxes = useQuery({ queryKey: ["sandboxes"], queryFn: () => client.listSandboxes() });
  const [question, setQuestion] = useState<Question | null>(null);
  const columns = useMemo<readonly Column<SandboxSummary>[]>(() => {
    const stop = ({ sandboxId, thread }: SandboxSummary): Question => {
      const words = thread === null ? texts.actions.destroyBlank : texts.actions.stop;
      const { text, button } = words;
      return {
        ...{ text, button, title: words.title(thread ?? sandboxId), mayBeInUse: thread !== null },
        act: (force) => client.destroySandbox(sandboxId, { force }),
      };
    };
    return [
      {
        name: "sandbox",
        title: t.columns.sandbox,
        width: "minmax(9rem, 1fr)",
        order: rowKey,
        cell: ({ sandboxId }) => <code title={sandboxId}>{short(sandboxId, 12)}</code>,
      },
      {
        name: "thread",
        title: t.columns.thread,
        width: "minmax(10rem, 2fr)",
        order: ({ thread }) => thread ?? "",
        cell: ({ user, thread }) =>
          user === null || thread === null ? (
            "–"
          ) : (
            <Link to="/threads/$user/$thread" params={{ user, thread }}>
              {thread}
            </Link>
          ),
      },
      {
        name: "user",
        title: t.columns.user,
        width: "minmax(7rem, 1fr)",
        order: ({ user }) => user ?? "",
        cell: ({ user }) => user ?? "–",
      },
      {
        name: "state",
        title: t.columns.state,
        width: "8rem",
        order: stateOf,
        cell: ({ state }) => <StateBadge state={state} />,
      },
      {
        name: "blueprint",
        title: t.columns.blueprint,
        width: "minmax(7rem, 1fr)",
        order: ({ blueprint }) => blueprint,
        cell: ({ blueprint }) => blueprint,
      },
      {
        name: "engine",
        title: t.columns.engine,
        width: "minmax(8rem, 1fr)",
        order: ({ engine, backend }) => engine ?? backend,
        cell: ({ engine, backend }) => <span title={engine}>{short(engine ?? backend, 60)}</span>,
      },
      {
        name: "holders",
        title: t.columns.holders,
        width: "6rem",
        order: ({ holders }) => holders.length,
        cell: ({ holders }) => holders.length,
      },
      {
        name: "age",
        title: t.columns.age,
        width: "8rem",
        order: ({ createdAt }) => -createdAt,
        cell: ({ createdAt }) => <Age since={createdAt} />,
      },
      {
        name: "actions",
        title: t.columns.actions,
        width: "7rem",
        cell: (row) => (
          <span className="actions">
            <button
              type="button"
              aria-label={`${t.stop} ${row.thread ?? row.sandboxId}`}
              onClick={() => setQuestion(stop(row))}
            >
              {t.stop}
            </button>
          </span>
        ),
      },
    ];
  }, [client]);
  return (
    <>
      {sandboxes.error !== null && <ErrorNotice error={sandboxes.error} retry={sandboxes.refetch} />}
      <ListPage
        title={t.title}
        to="/sandboxes"
        search={search}
        rows={sandboxes.data ?? null}
        columns={columns}
        filterLabel={t.filter}
        empty={t.empty}
        emptyHint={t.emptyHint}
        noMatch={t.noMatch}
        states={STATES}
        initialSort={{ by: "age", isDown: false }}
        rowKey={rowKey}
        textOf={textOf}
        stateOf={stateOf}
      />
      <Confirm
        question={question}
        onDone={(happened) => {
          setQuestion(null);
          if (happened) void sandboxes.refetch();
        }}
      />
    </>
  );
}

export function Age({ since }: { readonly since: number }) {
  return <>{ageOf(since, useNow())}</>;
}
