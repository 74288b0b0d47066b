/** Columns that the tables of sandboxes and of threads share. Everything in them may come from a sandbox's caller. */

import { Link } from "@tanstack/react-router";
import { ageOf } from "../format.ts";
import { useNow } from "../live.tsx";
import { texts } from "../texts.ts";
import type { Column } from "./data-table.tsx";
import { StateBadge } from "./state-badge.tsx";
import { actionsOf, isDangerous, type ThreadAction } from "./thread-actions.ts";

const { columns: titles } = texts.sandboxes;

/** What a row says about its thread and its sandbox; `null` where it has none. */
export interface RowFacts {
  readonly user: string | null;
  readonly thread: string | null;
  readonly state: string;
  readonly createdAt: number | null;
}

type Facts<Row> = (row: Row) => RowFacts;

export function threadColumn<Row>(factsOf: Facts<Row>): Column<Row> {
  return {
    ...{ name: "thread", title: titles.thread, width: "minmax(10rem, 2fr)" },
    order: (row) => factsOf(row).thread ?? "",
    cell: (row) => {
      const { user, thread } = factsOf(row);
      if (user === null || thread === null) return "–";
      return (
        <Link to="/threads/$user/$thread" params={{ user, thread }}>
          {thread}
        </Link>
      );
    },
  };
}

export function userColumn<Row>(factsOf: Facts<Row>): Column<Row> {
  return {
    ...{ name: "user", title: titles.user, width: "minmax(7rem, 1fr)" },
    order: (row) => factsOf(row).user ?? "",
    cell: (row) => factsOf(row).user ?? "–",
  };
}

export function stateColumn<Row>(factsOf: Facts<Row>): Column<Row> {
  return {
    ...{ name: "state", title: titles.state, width: "8rem" },
    order: (row) => factsOf(row).state,
    cell: (row) => <StateBadge state={factsOf(row).state} />,
  };
}

export function ageColumn<Row>(factsOf: Facts<Row>): Column<Row> {
  return {
    ...{ name: "age", title: titles.age, width: "8rem" },
    order: (row) => -(factsOf(row).createdAt ?? 0),
    cell: (row) => {
      const { createdAt } = factsOf(row);
      return createdAt === null ? "–" : <Age since={createdAt} />;
    },
  };
}

/** The actions of a thread; for a row without one, `blank` is its only action. */
export function actionsColumn<Row>(
  factsOf: Facts<Row>,
  ask: (action: ThreadAction, row: Row) => void,
  blank: (row: Row) => void = () => undefined,
): Column<Row> {
  const shown = (row: Row) => actionsOf(factsOf(row).createdAt !== null).filter((action) => action !== "reset");
  return {
    ...{ name: "actions", title: titles.actions, width: "15rem" },
    cell: (row) => {
      const { thread } = factsOf(row);
      if (thread === null)
        return (
          <span className="actions">
            <button type="button" onClick={() => blank(row)}>
              {texts.sandboxes.end}
            </button>
          </span>
        );
      return (
        <span className="actions">
          {shown(row).map((action) => (
            <button
              key={action}
              type="button"
              className={isDangerous(action) ? "danger" : ""}
              aria-label={`${texts.actions[action].short} ${thread}`}
              onClick={() => ask(action, row)}
            >
              {texts.actions[action].short}
            </button>
          ))}
        </span>
      );
    },
  };
}

function Age({ since }: { readonly since: number }) {
  return <>{ageOf(since, useNow())}</>;
}
