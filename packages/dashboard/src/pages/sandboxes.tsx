/** Every sandbox that the key may see. */

import type { SandboxSummary } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { short } from "../format.ts";
import { type Ask, ListPage } from "../parts/list-page.tsx";
import { actionsColumn, ageColumn, stateColumn, threadColumn, userColumn } from "../parts/row-columns.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";

const t = texts.sandboxes;
const STATES = ["creating", "leased", "parked", "blank", "stopping"];
const textOf = ({ sandboxId, thread, user, blueprint, engine }: SandboxSummary) =>
  [sandboxId, thread, user, blueprint, engine].join(" ");
const rowKey = ({ sandboxId }: SandboxSummary) => sandboxId;
const factsOf = (row: SandboxSummary) => row;

const columnsOf = ({ ask, askThread, client }: Ask<SandboxSummary>) => [
  {
    ...{ name: "sandbox", title: t.columns.sandbox, width: "minmax(9rem, 1fr)", order: rowKey },
    cell: ({ sandboxId }: SandboxSummary) => <code title={sandboxId}>{short(sandboxId, 12)}</code>,
  },
  threadColumn(factsOf),
  userColumn(factsOf),
  stateColumn(factsOf),
  {
    ...{ name: "blueprint", title: t.columns.blueprint, width: "minmax(7rem, 1fr)" },
    order: ({ blueprint }: SandboxSummary) => blueprint,
    cell: ({ blueprint }: SandboxSummary) => blueprint,
  },
  {
    ...{ name: "engine", title: t.columns.engine, width: "minmax(8rem, 1fr)" },
    order: ({ engine, backend }: SandboxSummary) => engine ?? backend,
    cell: ({ engine, backend }: SandboxSummary) => <span title={engine}>{short(engine ?? backend, 60)}</span>,
  },
  {
    ...{ name: "holders", title: t.columns.holders, width: "6rem" },
    order: ({ holders }: SandboxSummary) => holders.length,
    cell: ({ holders }: SandboxSummary) => holders.length,
  },
  ageColumn(factsOf),
  actionsColumn(factsOf, askThread, ({ sandboxId }) => {
    const { title, text, button } = texts.actions.destroyBlank;
    ask({ title: title(short(sandboxId, 12)), text, button, act: () => client.destroySandbox(sandboxId) });
  }),
];

export function SandboxesPage() {
  const search = useSearch({ from: "/sandboxes" });
  const { client } = useSession();
  const rows = useQuery({ queryKey: ["sandboxes"], queryFn: () => client.listSandboxes() });
  return (
    <ListPage
      to="/sandboxes"
      search={search}
      rows={rows}
      columnsOf={columnsOf}
      words={t}
      states={STATES}
      initialSort={{ by: "age", isDown: false }}
      rowKey={rowKey}
      textOf={textOf}
      factsOf={factsOf}
    />
  );
}
