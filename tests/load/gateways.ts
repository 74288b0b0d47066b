/**
 * Several gateways on one store, one home and one engine, behind a round robin: `npm run load -- --gateways 2 --store
 * postgres`.
 *
 *   1. windows with one gateway and with all of them, in turns: the p99 of an exec, as a ratio
 *   2. a rolling restart: each gateway is ended by SIGTERM and started again, under load
 *
 * Every client does an agent's turns: a lease, a command that appends a line to the thread's journal, a look at the line,
 * a release. A line counts as acknowledged when its command was answered. At the end every journal has every
 * acknowledged line, once.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type ClientLease, SandlotClient } from "@sandlot/client";
import { isSandlotError } from "@sandlot/contract";
import { openDatabase, parseStoreName, type StoreName } from "../crash/database/open-database.ts";
import { GatewayProcess } from "./gateway-process.ts";
import { Latencies } from "./latencies.ts";
import { RoundRobin } from "./round-robin.ts";

const RATIO_LIMIT = 1.5;
const JOURNAL = "/mnt/user-data/workspace/journal";
/** Pairs of windows: one gateway, all gateways. */
const PAIRS = 4;
const LEASE_TTL_MS = 60_000;
const REST_MS = 2_000;
/** A window is longer on a machine where commands are slow: its figure needs some. */
const WINDOW_EXECS_MIN = 30;
const WINDOW_STRETCH_MAX = 20;
const LOOK_MS = 100;

export interface GatewaysOptions {
  readonly gateways: number;
  readonly store: string;
  readonly seconds: number;
  readonly clients: number;
  readonly threads: number;
}

export async function gatewaysUnderLoad(options: GatewaysOptions): Promise<number> {
  const { threads, clients, seconds } = options;
  const store = parseStoreName(options.store);
  const home = mkdtempSync(join(tmpdir(), "sandlot-load-"));
  const database = await openDatabase(store, home);
  const config = join(home, "config.json");
  writeFileSync(config, JSON.stringify(configWith(store, database.address, threads)));
  const running: GatewayProcess[] = [];
  process.on("exit", () => {
    for (const gateway of running) gateway.killNow();
    database.endNow();
  });
  const balancer = await RoundRobin.open();
  const begin = async (index: number) => {
    running[index] = await GatewayProcess.start(home, config, `gateway-${index + 1}`);
  };
  for (let index = 0; index < options.gateways; index += 1) await begin(index);
  const urls = () => running.map(({ url }) => url);
  balancer.use(urls());
  const apiKey = readFileSync(join(home, "operator.key"), "utf8").trim();
  const load = new Load({ url: balancer.url, apiKey, threads, clients });
  console.log(`load on ${options.gateways} gateways and ${store}: ${clients} clients, ${threads} threads, in ${home}`);

  load.start();
  await sleep(REST_MS);
  const windowMs = (seconds * 1_000) / (2 * PAIRS);
  const ratios: number[] = [];
  for (let pair = 0; pair < PAIRS; pair += 1) {
    balancer.use(urls().slice(0, 1));
    const one = await load.window("exec, one gateway", windowMs);
    balancer.use(urls());
    ratios.push((await load.window(`exec, ${options.gateways} gateways`, windowMs)) / one);
  }
  load.window("exec, restarting", 0);
  for (let index = 0; index < options.gateways; index += 1) {
    const former = running[index];
    if (former !== undefined) await balancer.takeOut(former.url);
    const code = await former?.end();
    if (code !== 0) load.note(`gateway-${index + 1} ended with ${code}`);
    await begin(index);
    balancer.use(urls());
    await sleep(REST_MS);
  }
  await load.stop();
  await load.verify();

  const ratio = ratios.toSorted((a, b) => a - b)[PAIRS >> 1] ?? Number.NaN;
  if (!(ratio <= RATIO_LIMIT)) load.note(`exec p99 with ${options.gateways} gateways is ${ratio.toFixed(2)} × one`);
  for (const failure of balancer.failures) load.note(failure);
  await balancer.close();
  for (const gateway of running) await gateway.end();
  await database.end();
  console.log(load.latencies.table());
  console.log(`requests by gateway: ${[...balancer.served.values()].join(", ")}`);
  console.log(
    `exec p99: ${options.gateways} gateways ${ratio.toFixed(2)} × one (limit ${RATIO_LIMIT}; pairs ${ratios.map((one) => one.toFixed(2)).join(", ")})`,
  );
  console.log(
    `${load.turns} turns, ${options.gateways} gateways restarted, ${load.lostLeases} leases lost, ` +
      `${load.acknowledgedCount} acknowledged writes, ${load.lostWrites} lost, ${load.problems.length} problems`,
  );
  for (const problem of load.problems.slice(0, 30)) console.error(problem);
  const isClean = load.problems.length === 0 && load.turns > 0;
  if (isClean) rmSync(home, { recursive: true, force: true });
  else console.log(`kept: ${home} (gateway-N.log)`);
  return isClean ? 0 : 1;
}

function configWith(store: StoreName, address: object, threads: number): object {
  const { host, port, database, user, path } = address as Record<string, unknown>;
  const section =
    store === "sqlite" ? { path } : store === "postgres" ? { host, port, database, user } : endpoint(address);
  return {
    backend: "local",
    store: { type: store, ...section },
    limits: { max: threads + 10, queueMax: 10_000 },
    acquireTimeoutMs: 60_000,
    pool: {},
    gateway: {
      rate: { perKeyPerSecond: 1e6, perUserPerSecond: 1e6, burst: 1e6, perAddressFailuresPerMinute: 1e6 },
    },
  };
}

function endpoint(address: object): object {
  const { topology } = address as { topology: { endpoint: { host: string; port: number } } };
  return topology.endpoint;
}

class Load {
  readonly latencies = new Latencies();
  readonly problems: string[] = [];
  turns = 0;
  lostLeases = 0;
  lostWrites = 0;
  readonly #client: SandlotClient;
  readonly #threads: number;
  readonly #clients: number;
  readonly #acknowledged = new Map<string, string[]>();
  #running: readonly Promise<void>[] = [];
  #isEnding = false;
  #step = "exec, warm-up";

  constructor({ url, apiKey, threads, clients }: { url: string; apiKey: string; threads: number; clients: number }) {
    this.#client = new SandlotClient({ url, apiKey });
    this.#threads = threads;
    this.#clients = clients;
  }

  get acknowledgedCount(): number {
    return [...this.#acknowledged.values()].reduce((sum, lines) => sum + lines.length, 0);
  }

  note(problem: string): void {
    this.problems.push(problem);
  }

  start(): void {
    this.#running = Array.from({ length: this.#clients }, (_, index) => this.#work(index));
  }

  async stop(): Promise<void> {
    this.#isEnding = true;
    await Promise.all(this.#running);
  }

  /** The p99 of the execs of this time, in milliseconds. */
  async window(name: string, ms: number): Promise<number> {
    this.#step = name;
    const from = this.latencies.count(name);
    await sleep(ms);
    const isPoor = () => this.latencies.count(name) - from < WINDOW_EXECS_MIN;
    for (let waited = ms; ms > 0 && isPoor() && waited < ms * WINDOW_STRETCH_MAX; waited += LOOK_MS)
      await sleep(LOOK_MS);
    return this.latencies.percentile(name, 0.99, from);
  }

  /** Every journal has every acknowledged line once. */
  async verify(): Promise<void> {
    for (const [thread, lines] of this.#acknowledged) {
      await using lease = await this.#client.acquire({ thread, purpose: "verify", ttlMs: LEASE_TTL_MS });
      const found = (await lease.sandbox.files.readText(JOURNAL)).split("\n");
      for (const line of lines) {
        const count = found.filter((one) => one === line).length;
        if (count === 1) continue;
        this.lostWrites += count === 0 ? 1 : 0;
        this.note(`${thread} has ${line} ${count} times`);
      }
    }
  }

  async #work(index: number): Promise<void> {
    for (let round = 0; !this.#isEnding; round += 1) {
      const thread = `load-${(index + round * this.#clients) % this.#threads}`;
      try {
        await this.#turn(thread, `${index}-${round}-${Math.random().toString(36).slice(2)}`);
        this.turns += 1;
      } catch (error) {
        this.note(`client ${index}: ${isSandlotError(error) ? `${error.code} ${error.message}` : String(error)}`);
      }
    }
  }

  async #turn(thread: string, line: string): Promise<void> {
    const lease = await this.latencies.of("acquire", () =>
      this.#client.acquire({ thread, purpose: "load", ttlMs: LEASE_TTL_MS }),
    );
    const unlisten = lease.onLost(({ reason }) => {
      this.lostLeases += 1;
      this.note(`${thread}: a lease was lost: ${reason}`);
    });
    try {
      await this.#write(lease, thread, line);
    } finally {
      unlisten();
      await this.latencies.of("release", () => lease.release());
    }
  }

  async #write(lease: ClientLease, thread: string, line: string): Promise<void> {
    const result = await this.latencies.of(this.#step, () =>
      lease.sandbox.exec(`echo ${line} >> ${JOURNAL}; echo ${line}`),
    );
    if (result.stdout !== `${line}\n`) return this.note(`${thread}: exec printed ${JSON.stringify(result.stdout)}`);
    this.#acknowledged.set(thread, [...(this.#acknowledged.get(thread) ?? []), line]);
    const text = await this.latencies.of("read", () => lease.sandbox.files.readText(JOURNAL));
    if (!text.includes(`${line}\n`)) this.note(`${thread}: ${line} was written and is not there`);
  }
}
