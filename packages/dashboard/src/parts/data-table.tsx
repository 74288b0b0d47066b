/**
 * A table of any length: only the rows in view are in the page. Rows keep their place and are updated there.
 *
 * Invariants
 * - Every row has the same height, and text that does not fit is cut: a name from a sandbox cannot move its neighbours.
 * - Sorting is the page's, so that it can be a part of the address.
 */

import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";
import { texts } from "../texts.ts";

const ROW_PX = 42;

export interface Column<Row> {
  readonly name: string;
  readonly title: string;
  /** A track of a CSS grid. */
  readonly width: string;
  cell(row: Row): React.ReactNode;
  /** Absent: it cannot be sorted. */
  readonly order?: (row: Row) => string | number;
}

export interface Sorting {
  readonly by: string;
  readonly isDown: boolean;
}

export function DataTable<Row>({
  what,
  columns,
  rows,
  rowKey,
  sorting,
  onSort,
}: {
  readonly what: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  rowKey(row: Row): string;
  readonly sorting: Sorting;
  onSort(sorting: Sorting): void;
}) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    getItemKey: (index) => {
      const row = rows[index];
      return row === undefined ? index : rowKey(row);
    },
  });
  const tracks = columns.map(({ width }) => width).join(" ");
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard
    <section className="table" ref={scroller} tabIndex={0} aria-label={texts.table.label(what)}>
      {/* biome-ignore lint/a11y/useSemanticElements: rows that are placed one by one are no rows of a table element */}
      <div role="table" aria-label={what} aria-rowcount={rows.length + 1}>
        {/* biome-ignore lint/a11y/useSemanticElements: as above */}
        <div role="rowgroup" className="table-head">
          {/* biome-ignore lint/a11y/useSemanticElements: as above */}
          {/* biome-ignore lint/a11y/useFocusableInteractive: as above */}
          <div role="row" aria-rowindex={1} style={{ gridTemplateColumns: tracks }}>
            {columns.map((column) => (
              <ColumnHeader key={column.name} column={column} sorting={sorting} onSort={onSort} />
            ))}
          </div>
        </div>
        {/* biome-ignore lint/a11y/useSemanticElements: as above */}
        <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map(({ index, key, start }) => {
            const row = rows[index];
            if (row === undefined) return null;
            return (
              // biome-ignore lint/a11y/useSemanticElements: as above
              // biome-ignore lint/a11y/useFocusableInteractive: as above
              <div
                key={key}
                role="row"
                aria-rowindex={index + 2}
                style={{ gridTemplateColumns: tracks, transform: `translateY(${start}px)` }}
              >
                {columns.map(({ name, cell }) => (
                  // biome-ignore lint/a11y/useSemanticElements: as above
                  <div key={name} role="cell">
                    {cell(row)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </section>
  );
}

function ColumnHeader<Row>({
  column: { name, title, order },
  sorting,
  onSort,
}: {
  readonly column: Column<Row>;
  readonly sorting: Sorting;
  onSort(sorting: Sorting): void;
}) {
  const isSorted = sorting.by === name;
  const direction = isSorted ? (sorting.isDown ? "descending" : "ascending") : "none";
  return (
    // biome-ignore lint/a11y/useSemanticElements: see DataTable
    // biome-ignore lint/a11y/useFocusableInteractive: its button is
    <div role="columnheader" {...(order !== undefined && { "aria-sort": direction })}>
      {order === undefined ? (
        title
      ) : (
        <button
          type="button"
          title={texts.table.sortBy(title)}
          onClick={() => onSort({ by: name, isDown: isSorted && !sorting.isDown })}
        >
          {title} {isSorted ? (sorting.isDown ? "↓" : "↑") : ""}
        </button>
      )}
    </div>
  );
}

export function sorted<Row>(rows: readonly Row[], columns: readonly Column<Row>[], { by, isDown }: Sorting): Row[] {
  const order = columns.find(({ name }) => name === by)?.order;
  if (order === undefined) return [...rows];
  const compare = (a: Row, b: Row) => {
    const [one, other] = [order(a), order(b)];
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other), "en");
  };
  return [...rows].sort((a, b) => (isDown ? -compare(a, b) : compare(a, b)));
}
