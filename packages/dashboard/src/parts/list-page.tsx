/** A page that is a table: its filter and its order are in the address. */

import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { texts } from "../texts.ts";
import { type Column, DataTable, type Sorting, sorted } from "./data-table.tsx";

export interface ListSearch {
  readonly q?: string | undefined;
  readonly state?: string | undefined;
  readonly sort?: string | undefined;
}

interface ListPageProps<Row> {
  readonly title: string;
  readonly to: "/sandboxes" | "/threads";
  readonly search: ListSearch;
  readonly rows: readonly Row[] | null;
  readonly columns: readonly Column<Row>[];
  readonly filterLabel: string;
  readonly empty: string;
  readonly emptyHint?: string;
  readonly noMatch: string;
  /** The states that can be asked for. */
  readonly states: readonly string[];
  readonly initialSort: Sorting;
  rowKey(row: Row): string;
  textOf(row: Row): string;
  stateOf(row: Row): string;
}

export function ListPage<Row>(props: ListPageProps<Row>) {
  const { title, to, search, rows, columns, states, rowKey, textOf, stateOf } = props;
  const navigate = useNavigate();
  const sorting = sortingOf(search.sort, props.initialSort);
  const change = (next: ListSearch) => void navigate({ to, search: { ...search, ...next }, replace: true });
  const { q, state } = search;
  const { by, isDown } = sorting;
  const shown = useMemo(() => {
    const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row: Row) => {
      const text = textOf(row).toLowerCase();
      return (state === undefined || stateOf(row) === state) && words.every((word) => text.includes(word));
    };
    return sorted((rows ?? []).filter(matches), columns, { by, isDown });
  }, [rows, columns, q, state, by, isDown, textOf, stateOf]);
  return (
    <>
      <div className="head">
        <h1>{title}</h1>
        {rows !== null && <span className="badge">{texts.sandboxes.count(shown.length, rows.length)}</span>}
      </div>
      <search className="filters">
        <div className="field">
          <label htmlFor="filter">{props.filterLabel}</label>
          <input
            id="filter"
            type="search"
            value={search.q ?? ""}
            onChange={(event) => change({ q: event.target.value || undefined })}
          />
        </div>
        <div className="field">
          <label htmlFor="state">{texts.sandboxes.state}</label>
          <select
            id="state"
            value={search.state ?? ""}
            onChange={(event) => change({ state: event.target.value || undefined })}
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
      {rows === null ? (
        <p className="empty">{texts.loading}</p>
      ) : shown.length === 0 ? (
        <div className="empty">
          <p>{rows.length === 0 ? props.empty : props.noMatch}</p>
          {rows.length === 0 && props.emptyHint !== undefined && <p>{props.emptyHint}</p>}
        </div>
      ) : (
        <DataTable
          what={title}
          columns={columns}
          rows={shown}
          rowKey={rowKey}
          sorting={sorting}
          onSort={({ by, isDown }) => change({ sort: isDown ? `-${by}` : by })}
        />
      )}
    </>
  );
}

function sortingOf(text: string | undefined, initial: Sorting): Sorting {
  if (text === undefined) return initial;
  return text.startsWith("-") ? { by: text.slice(1), isDown: true } : { by: text, isDown: false };
}
