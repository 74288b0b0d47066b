/** The store on PostgreSQL behaves as every other store: the one suite, and the differential test, with a real server. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { describeStore } from "../../../src/testing/store-suite.ts";
import { expectSameAnswers } from "../../store/differential.ts";
import { onClockOf, openStore } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

/** Each sequence opens a schema of its own, and a test may take two minutes on a slow machine. */
const DIFFERENTIAL_RUNS = 15;
const missing = missingPostgres();

if (missing !== null) it("the store on PostgreSQL", (context) => context.skip(missing));
else {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.dispose());
  describeStore({ name: "postgres", tools: { describe, it, expect }, open: () => openStore(server) });

  describe("memory and postgres", () => {
    it("give the same answers to every sequence of steps", () =>
      expectSameAnswers((world) => openStore(server, world, (rows) => onClockOf(world, rows)), DIFFERENTIAL_RUNS));
  });
}
