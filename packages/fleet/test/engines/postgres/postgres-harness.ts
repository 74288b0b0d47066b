/** Row servers for the suites: one PostgreSQL server per test file, and a schema of its own for every case. */

import { setTimeout as sleep } from "node:timers/promises";
import { type Epoch, isSandlotError } from "@sandlot/contract";
import { openPostgresRowServer, type PostgresRowServer } from "../../../src/store/postgres/postgres-row-server.ts";
import type { PostgresSettings } from "../../../src/store/postgres/settings.ts";
import type { Commit, RowKey, RowServer } from "../../../src/store/rows/row-server.ts";
import { RowStore } from "../../../src/store/rows/row-store.ts";
import type { Store } from "../../../src/store/store.ts";
import type { RowServerHarness } from "../../../src/testing/row-server-suite.ts";
import type { StoreHarness } from "../../../src/testing/store-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { World } from "../../../src/world/world.ts";
import { beginNewEpoch } from "../../store/stores.ts";
import { BreakableProxy } from "./breakable-proxy.ts";
import type { PostgresServer } from "./postgres-server.ts";

export const world = systemWorld();
let schemas = 0;

/** Longer than every answer of a healthy server, so short that a hanging one does not hold up the suite. */
const TIMEOUT_MS = 2_000;

export function newSchema(): string {
  schemas += 1;
  return `fleet_${schemas}`;
}

export async function openRows(server: PostgresServer): Promise<RowServerHarness> {
  const schema = newSchema();
  const proxy = await BreakableProxy.start(`${server.directory}/.s.PGSQL.${server.port}`);
  const opened: PostgresRowServer[] = [];
  const open = async (over: Partial<PostgresSettings> = {}) => {
    const rows = await openPostgresRowServer(server.settings({ schema, timeoutMs: TIMEOUT_MS, ...over }), world);
    opened.push(rows);
    return rows;
  };
  return {
    server: await open({ host: "127.0.0.1", port: proxy.port }),
    second: () => open(),
    cut: async () => proxy.cut(),
    async interrupt() {
      const restore = proxy.interrupt();
      return async () => restore();
    },
    async age(ms) {
      await server.admin(`UPDATE "${schema}".commits SET at = at - ${ms}`, "app");
      while (await opened[0]?.purgeBatch());
    },
    async dispose() {
      for (const one of opened) await one.close();
      await proxy.close();
      await server.admin(`DROP SCHEMA "${schema}" CASCADE`, "app");
    },
  };
}

/** Opens a client, and closes it after the test. */
export async function openClient(settings: PostgresSettings): Promise<Client> {
  const rows = await openPostgresRowServer(settings, world);
  const client = new Client(rows);
  await client.refresh();
  return client;
}

/** A client that knows its epoch and repeats nothing. */
export class Client implements AsyncDisposable {
  readonly rows: PostgresRowServer;
  epoch = "" as Epoch;

  constructor(rows: PostgresRowServer) {
    this.rows = rows;
  }

  async refresh(): Promise<void> {
    this.epoch = (await this.rows.read([], patience())).epoch;
  }

  async commitOf(writes: Readonly<Record<RowKey, string | null>>, over: Partial<Commit> = {}): Promise<Commit> {
    const { rows, now } = await this.rows.read(Object.keys(writes), patience());
    return {
      id: world.randomHex(16),
      epoch: this.epoch,
      seen: [],
      seenAt: now,
      notAfter: now + 60_000,
      reads: new Map(rows.map(({ key, seq }) => [key, seq])),
      writes: new Map(Object.entries(writes)),
      topics: [],
      isDurable: true,
      ...over,
    };
  }

  async write(writes: Readonly<Record<RowKey, string | null>>, over: Partial<Commit> = {}): Promise<string> {
    const commit = await this.commitOf(writes, over);
    const answer = await this.rows.commit(commit, patience());
    if (answer.kind !== "committed") throw new Error(`the commit was answered with ${answer.kind}`);
    return commit.id;
  }

  async body(key: RowKey): Promise<string | null> {
    return (await this.rows.read([key], patience())).rows[0]?.body ?? null;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.rows.close();
  }
}

/** Finds hangs. */
export function patience(ms = 30_000): AbortSignal {
  return AbortSignal.timeout(ms);
}

/** The problem of a call that must be `store_unavailable`. */
export async function problemOf(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!isSandlotError(error, "store_unavailable"))
    throw new Error("the call was not store_unavailable", { cause: error });
  return error.details.problem;
}

/** Tries until a call succeeds. */
export async function until<T>(call: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + 30_000;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await sleep(50);
    }
  }
}

/**
 * A row server whose clock shows the time of a test's world. PostgreSQL's own clock goes on; the times in commits and
 * answers are translated on the way.
 */
export function onClockOf(shown: World, server: RowServer): RowServer {
  const translated = <Answer extends { readonly now: number }>(answer: Answer): Answer => ({
    ...answer,
    now: shown.wallMs(),
  });
  return {
    kind: server.kind,
    promise: server.promise,
    async commit(commit, signal) {
      const now = world.wallMs();
      const [notAfter, seenAt] = [commit.notAfter, commit.seenAt].map((at) => now + at - shown.wallMs());
      return translated(await server.commit({ ...commit, notAfter: notAfter ?? now, seenAt: seenAt ?? now }, signal));
    },
    async read(keys, signal) {
      return translated(await server.read(keys, signal));
    },
    async scan(since, limit, signal) {
      const page = await server.scan(since, limit, signal);
      return page === null ? null : translated(page);
    },
    beginEpoch: (known, next, signal) => server.beginEpoch(known, next, signal),
    subscribe: (listener) => server.subscribe(listener),
    close: () => server.close(),
  };
}

/** A whole store on a schema of its own. `using`: the world of the store, not of its connections. */
export async function openStore(
  server: PostgresServer,
  using: World = world,
  change: (rows: RowServer) => RowServer = (rows) => rows,
): Promise<StoreHarness> {
  const settings = server.settings({ schema: newSchema() });
  const opened: Store[] = [];
  const open = async () => {
    const store = new RowStore({ server: change(await openPostgresRowServer(settings, world)), world: using });
    opened.push(store);
    return store;
  };
  return {
    store: await open(),
    second: open,
    // The loss of a database: another one takes its place while it is in use.
    async empty() {
      await server.admin(`DROP SCHEMA "${settings.schema}" CASCADE`, "app");
      await (await openPostgresRowServer(settings, world)).close();
    },
    async beginEpoch() {
      const rows = await openPostgresRowServer(settings, world);
      await beginNewEpoch(rows, world);
      await rows.close();
    },
    async dispose() {
      await Promise.all(opened.map((store) => store.close()));
      await server.admin(`DROP SCHEMA "${settings.schema}" CASCADE`, "app");
    },
  };
}
