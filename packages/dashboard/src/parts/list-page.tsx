/**
 * A page that is a table: its filter and its order are in the address, what can be done to a row asks first, and the
 * list is asked again after it.
 */

import type { SandlotClient } from "@sandlot/client";
import type { UseQueryResult } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";
import { Confirm, type Question } from "./confirm.tsx";
import { type Column, DataTable, type Sorting, sorted } from "./data-table.tsx";
import { ErrorNotice } from "./notice.tsx";
import type { RowFacts } from "./row-columns.tsx";
import { questionOf, type ThreadAction } from "./thread-actions.ts";

export interface ListSearch {
  readonly q?: string | undefined;
  readonly state?: string | undefined;
  readonly sort?: string | undefined;
}

/** For a column of actions. */
export interface Ask<Row> {
  /** Everything that the key may see. */
  readonly client: SandlotClient;
  ask(question: Question): void;
  askThread(action: ThreadAction, row: Row): void;
}

interface ListPageProps<Row> {
  readonly to: "/sandboxes" | "/threads";
  readonly search: ListSearch;
  readonly rows: UseQueryResult<readonly Row[]>;
  /** The same function in every render: columns are made once. */
  columnsOf(ask: Ask<Row>): readonly Column<Row>[];
  readonly words: Readonly<Record<"title" | "filter" | "empty" | "emptyHint" | "noMatch", string>>;
  /** The states that can be asked for. */
  readonly states: readonly string[];
  readonly initialSort: Sorting;
  rowKey(row: Row): string;
  textOf(row: Row): string;
  factsOf(row: Row): RowFacts;
}

export function ListPage<Row>(props: ListPageProps<Row>) {
  const { to, search, rows, columnsOf, words, states, rowKey, textOf, factsOf } = props;
  const { client, clientOf } = useSession();
  const navigate = useNavigate();
  const [question, setQuestion] = useState<Question | null>(null);
  const columns = useMemo(() => {
    const askThread = (action: ThreadAction, row: Row) => {
      const { user, thread } = factsOf(row);
      if (user !== null && thread !== null) setQuestion(questionOf(action, clientOf(user), user, thread));
    };
    return columnsOf({ client, ask: setQuestion, askThread });
  }, [columnsOf, factsOf, client, clientOf]);
  const sorting = sortingOf(search.sort, props.initialSort);
  const change = (next: ListSearch) => void navigate({ to, search: { ...search, ...next }, replace: true });
  const { q, state } = search;
  const { by, isDown } = sorting;
  const all = rows.data ?? null;
  const shown = useMemo(() => {
    const wanted = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row: Row) => {
      if (state !== undefined && factsOf(row).state !== state) return false;
      const text = textOf(row).toLowerCase();
      return wanted.every((word) => text.includes(word));
    };
    return sorted((all ?? []).filter(matches), columns, { by, isDown });
  }, [all, columns, q, state, by, isDown, textOf, factsOf]);
  return (
    <>
      {rows.error !== null && <ErrorNotice error={rows.error} retry={rows.refetch} />}
      <div className="head">
        <h1>{words.title}</h1>
        {all !== null && <span className="badge">{texts.sandboxes.count(shown.length, all.length)}</span>}
      </div>
      <Filters words={words} search={search} states={states} onChange={change} />
      {all === null ? (
        <p className="empty">{texts.loading}</p>
      ) : shown.length === 0 ? (
        <div className="empty">
          <p>{all.length === 0 ? words.empty : words.noMatch}</p>
          {all.length === 0 ? (
            <p>{words.emptyHint}</p>
          ) : (
            <button type="button" onClick={() => change({ q: undefined, state: undefined })}>
              {texts.sandboxes.clear}
            </button>
          )}
        </div>
      ) : (
        <DataTable
          what={words.title}
          columns={columns}
          rows={shown}
          rowKey={rowKey}
          sorting={sorting}
          onSort={({ by, isDown }) => change({ sort: isDown ? `-${by}` : by })}
        />
      )}
      <Confirm
        question={question}
        onDone={(happened) => {
          setQuestion(null);
          if (happened) void rows.refetch();
        }}
      />
    </>
  );
}

function Filters({
  words,
  search,
  states,
  onChange,
}: {
  readonly words: { readonly filter: string };
  readonly search: ListSearch;
  readonly states: readonly string[];
  onChange(next: ListSearch): void;
}) {
  return (
    <search className="filters">
      <div className="field">
        <label htmlFor="filter">{words.filter}</label>
        <input
          id="filter"
          type="search"
          value={search.q ?? ""}
          onChange={(event) => onChange({ q: event.target.value || undefined })}
        />
      </div>
      <div className="field">
        <label htmlFor="state">{texts.sandboxes.state}</label>
        <select
          id="state"
          value={search.state ?? ""}
          onChange={(event) => onChange({ state: event.target.value || undefined })}
        >
          <option value="">{texts.sandboxes.everyState}</option>
          {states.map((state) => (
            <option key={state} value={state}>
              {texts.states[state] ?? state}
            </option>
          ))}
        </select>
      </div>
    </search>
  );
}

function sortingOf(text: string | undefined, initial: Sorting): Sorting {
  if (text === undefined) return initial;
  return text.startsWith("-") ? { by: text.slice(1), isDown: true } : { by: text, isDown: false };
}
