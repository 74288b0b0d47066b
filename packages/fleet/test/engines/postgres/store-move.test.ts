import { it } from "vitest";
import { hasBubblewrap, moveFleet } from "../../cli/moved-fleet.ts";
import { missingPostgres, startPostgres } from "./postgres-server.ts";

it("a fleet moves from SQLite to PostgreSQL: every sandbox is found warm, with its files and processes", async (context) => {
  const missing = missingPostgres() ?? (hasBubblewrap ? null : "bubblewrap is not installed");
  if (missing !== null) context.skip(missing);
  await using server = await startPostgres();
  const { host, port, database, user } = server.settings();
  await moveFleet(() => ({ type: "postgres", host, port, database, user }));
});
