/** The PostgreSQL row server keeps the contract of row servers, with a real server. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { describeRowServer } from "../../../src/testing/row-server-suite.ts";
import { openRows } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();

if (missing !== null) it("the row server on PostgreSQL", (context) => context.skip(missing));
else {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.dispose());
  describeRowServer({ name: "postgres", tools: { describe, it, expect }, open: () => openRows(server) });
}
