/** Every thread that the key may see, with and without a sandbox. */

import type { ThreadSummary } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { type Ask, ListPage } from "../parts/list-page.tsx";
import { actionsColumn, ageColumn, stateColumn, threadColumn, userColumn } from "../parts/row-columns.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";

const STATES = ["none", "creating", "leased", "parked", "stopping"];
const textOf = ({ user, thread }: ThreadSummary) => `${thread} ${user}`;
const rowKey = ({ user, thread }: ThreadSummary) => `${user}/${thread}`;
const factsOf = ({ user, thread, sandbox }: ThreadSummary) => ({
  ...{ user, thread, state: sandbox?.state ?? "none" },
  createdAt: sandbox?.createdAt ?? null,
});

const columnsOf = ({ askThread }: Ask<ThreadSummary>) => [
  threadColumn(factsOf),
  userColumn(factsOf),
  stateColumn(factsOf),
  ageColumn(factsOf),
  actionsColumn(factsOf, askThread),
];

export function ThreadsPage() {
  const search = useSearch({ from: "/threads" });
  const { client } = useSession();
  const rows = useQuery({ queryKey: ["threads"], queryFn: () => client.listThreads() });
  return (
    <ListPage
      to="/threads"
      search={search}
      rows={rows}
      columnsOf={columnsOf}
      words={texts.threads}
      states={STATES}
      initialSort={{ by: "thread", isDown: false }}
      rowKey={rowKey}
      textOf={textOf}
      factsOf={factsOf}
    />
  );
}
