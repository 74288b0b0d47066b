/** The store on PostgreSQL behaves as every other store: the one suite, with a real server. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { describeStore } from "../../../src/testing/store-suite.ts";
import { openStore } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();

if (missing !== null) it("the store on PostgreSQL", (context) => context.skip(missing));
else {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.dispose());
  describeStore({ name: "postgres", tools: { describe, it, expect }, open: () => openStore(server) });
}
