/** Commits do not wait for each other: those under way at the same time share the writes to the disk. */

import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Client, newSchema, openClient, patience } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();
const SECONDS = 2;
const CLIENTS = 16;
const BODY = JSON.stringify({ sandboxId: "s".repeat(32), token: "t".repeat(64), place: "p".repeat(400) });

let server: PostgresServer;
beforeAll(async () => {
  if (missing === null) server = await startPostgres();
});
afterAll(() => server?.dispose());

it("sixteen clients commit several times as much as one, and read the same session meanwhile", async (context) => {
  if (missing !== null) context.skip(missing);
  await using client = await openClient(server.settings({ schema: newSchema(), poolMax: CLIENTS }));
  await client.write({ "session/a": "here" });
  const session = (await client.rows.read(["session/a"], patience())).rows[0]?.seq ?? 0;
  const bare = await Promise.all(Array.from({ length: CLIENTS }, () => bareClient(server)));
  await bare[0]?.query("CREATE TABLE bare (key text PRIMARY KEY, seq bigint, body text)");
  const rates = new Map<string, number[]>();
  try {
    // Both sides take turns, so that a busy machine slows both.
    for (let turn = 0; turn < 2; turn += 1)
      for (const clients of [1, CLIENTS]) {
        const transactions = await rate(clients, (n, count) => writeBare(bare[n], n, count));
        const commits = await rate(clients, committer(client, session));
        rates.set(`bare ${clients}`, [...(rates.get(`bare ${clients}`) ?? []), transactions]);
        rates.set(`commit ${clients}`, [...(rates.get(`commit ${clients}`) ?? []), commits]);
      }
  } finally {
    await Promise.all(bare.map((one) => one.end()));
  }
  const best = (name: string) => Math.max(...(rates.get(name) ?? [0]));
  for (const clients of [1, CLIENTS]) {
    const [commits, transactions] = [best(`commit ${clients}`), best(`bare ${clients}`)];
    const share = Math.round((commits / transactions) * 100);
    console.log(
      `${clients} clients: ${Math.round(commits)} commits/s, ${Math.round(transactions)} bare/s (${share} %)`,
    );
  }
  expect(best(`commit ${CLIENTS}`)).toBeGreaterThan(best("commit 1") * 2);
  expect(best(`commit ${CLIENTS}`)).toBeGreaterThan(best(`bare ${CLIENTS}`) / 4);
});

/** How often `step` runs in a second, in `clients` loops at once. */
async function rate(clients: number, step: (client: number, count: number) => Promise<void>): Promise<number> {
  let count = 0;
  const end = performance.now() + SECONDS * 1_000;
  const loop = async (client: number) => {
    while (performance.now() < end) {
      await step(client, count);
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: clients }, (_, client) => loop(client)));
  return count / SECONDS;
}

/** A hold: reads the session, its thread and its record, and writes the record. */
function committer(client: Client, session: number): (n: number) => Promise<void> {
  const seqs = new Map<number, number>();
  return async (n) => {
    const known = seqs.get(n) ?? (await client.rows.read([`record/${n}`], patience())).rows[0]?.seq ?? 0;
    const reads = new Map([
      ["session/a", session],
      [`thread/${n}`, 0],
      [`record/${n}`, known],
    ]);
    const writes = new Map([[`record/${n}`, BODY]]);
    const answer = await client.rows.commit({ ...(await base(client)), reads, writes }, patience());
    if (answer.kind !== "committed") throw new Error(`answered with ${answer.kind}`);
    seqs.set(n, answer.seq);
  };
}

let counter = 0;
async function base(client: Client) {
  counter += 1;
  const fixed = {
    epoch: client.epoch,
    seen: [],
    seenAt: 0,
    notAfter: Date.now() + 3_600_000,
    topics: [],
    isDurable: false,
  };
  return { ...fixed, id: `${counter}-${Math.random()}` };
}

async function bareClient({ directory, port }: PostgresServer): Promise<pg.Client> {
  const client = new pg.Client({ host: directory, port, user: "app", database: "app", password: "" });
  await client.connect();
  return client;
}

async function writeBare(client: pg.Client | undefined, n: number, count: number): Promise<void> {
  await client?.query({
    name: "bare",
    text: "INSERT INTO bare VALUES ($1, $2, $3) ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, body = excluded.body",
    values: [`record/${n}`, count, BODY],
  });
}
