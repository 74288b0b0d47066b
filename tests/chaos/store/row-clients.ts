/** The row clients of a run, each over a link of its own, and the look at their rows over one that no fault touches. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { RowServer } from "../../../packages/fleet/src/store/rows/row-server.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { patiently } from "../../crash/database/patiently.ts";
import { openRows } from "../../crash/database/store-address.ts";
import { Random } from "../../simulation/schedule/random.ts";
import type { ChaosDatabase } from "./chaos-database.ts";
import { Link } from "./link.ts";
import { RowClient } from "./row-client.ts";
import { RowFacts } from "./row-facts.ts";

const CLIENTS = 3;
const ANSWERED_MAX_MS = 10_000;

export class RowClients {
  readonly facts: RowFacts;
  readonly links: readonly Link[];
  readonly #clients: readonly RowClient[];
  readonly #servers: readonly RowServer[];
  readonly #direct: RowServer;
  readonly #running: readonly Promise<void>[];
  readonly #violated: (what: string) => void;
  readonly epochs = new Set<string>();

  private constructor(parts: {
    facts: RowFacts;
    links: readonly Link[];
    clients: readonly RowClient[];
    servers: readonly RowServer[];
    direct: RowServer;
    violated: (what: string) => void;
  }) {
    this.#violated = parts.violated;
    this.facts = parts.facts;
    this.links = parts.links;
    this.#clients = parts.clients;
    this.#servers = parts.servers;
    this.#direct = parts.direct;
    this.#running = parts.clients.map((client) => client.run());
  }

  static async start(database: ChaosDatabase, seed: number, violated: (what: string) => void): Promise<RowClients> {
    const world = systemWorld();
    const facts = new RowFacts(violated);
    const direct = await patiently(() => openRows(database.apart(database.address), world));
    const links: Link[] = [];
    const servers: RowServer[] = [];
    const clients: RowClient[] = [];
    for (let number = 1; number <= CLIENTS; number += 1) {
      const link = await Link.open(database.upstream);
      const address = database.apart(database.addressAt(link.port));
      const rows = await patiently(() => openRows(address, world));
      const common = { rows, facts, timeoutMs: database.stepMs, newId: randomUUID };
      const parts = { ...common, name: `row-client-${number}`, random: new Random(seed, number) };
      clients.push(await patiently(() => RowClient.open(parts)));
      links.push(link);
      servers.push(rows);
    }
    return new RowClients({ facts, links, clients, servers, direct, violated });
  }

  /** While no fault is under way. A loss is noticed by the first client that knew more, so each is heard first. */
  async check(): Promise<void> {
    const before = this.#clients.map(({ answeredCount }) => answeredCount);
    const isSilent = (client: RowClient, index: number) => client.answeredCount === before[index];
    const until = performance.now() + ANSWERED_MAX_MS;
    while (this.#clients.some(isSilent) && performance.now() < until) await sleep(10);
    const silent = this.#clients.filter(isSilent).length;
    if (silent > 0) this.#violated(`${silent} row clients have no answer ${ANSWERED_MAX_MS} ms after the fault`);
    this.epochs.add((await this.#direct.read([], AbortSignal.timeout(5_000))).epoch);
    await this.facts.check(this.#direct);
  }

  async end(): Promise<void> {
    for (const client of this.#clients) client.finish();
    await Promise.all(this.#running);
    this.facts.close();
    for (const server of [...this.#servers, this.#direct]) await server.close();
    for (const link of this.links) await link.close();
  }
}
