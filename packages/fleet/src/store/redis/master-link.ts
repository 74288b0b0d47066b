/**
 * The connections to the present master, opened again in the background after a loss.
 *
 * Invariants
 * - While there is no connection, calls reject at once. Nothing is queued.
 * - Every new connection is checked as the first one was: after a failover another server has other settings.
 * - The connections of one link are to one server, and are lost together.
 */

import { SandlotError } from "@sandlot/contract";
import { sleep, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { epochAfter } from "../rows/epoch-order.ts";
import { type Connection, connect, type Dial } from "./connection.ts";
import { DurableCommits } from "./durable-commits.ts";
import { locateMaster } from "./locate-master.ts";
import { readFacts, refuseDangers, type ServerFacts } from "./safety.ts";
import { FORMAT, type Keys, SCRIPTS } from "./scripts.ts";
import { type RedisSettings, showEndpoint, showPlace } from "./settings.ts";
import { foreignKeys, isPassing, problemOfRights, troubleOf, unavailable, wordOf } from "./trouble.ts";

/** The first attempt after a loss comes at once, the others after a growing wait. */
const RETRY_FIRST_MS = 50;
const RETRY_MAX_MS = 1_000;

export interface MasterSession {
  readonly dial: Dial;
  readonly commands: Connection;
  /** For commits that wait for replicas: `WAIT` blocks its connection. `null` where none waits. */
  readonly durable: DurableCommits | null;
  readonly facts: ServerFacts;
}

export interface MasterLinkOptions {
  readonly settings: RedisSettings;
  readonly keys: Keys;
  readonly world: World;
}

export class MasterLink {
  readonly #options: MasterLinkOptions;
  readonly #closing = new AbortController();
  readonly #listeners = new Set<(session: MasterSession) => void>();
  #session: MasterSession | null = null;
  #problem: unknown = null;
  #keeping: Promise<void> = Promise.resolve();

  /** Rejects with `store_unavailable` or `store_corrupt` if the server cannot be used, within its timeout. */
  static async open(options: MasterLinkOptions, signal?: AbortSignal): Promise<MasterLink> {
    const link = new MasterLink(options);
    const { settings, world } = options;
    const late = () => link.#trouble("open");
    try {
      const first = await within(world, settings.timeoutMs, signal, late, (until) => link.#first(until));
      link.#keeping = link.#keep(first);
      return link;
    } catch (error) {
      await link.close();
      throw troubleOf("open", showPlace(settings), error);
    }
  }

  private constructor(options: MasterLinkOptions) {
    this.#options = options;
  }

  /** The present session. Throws `store_unavailable` if there is none. */
  session(operation: string): MasterSession {
    if (this.#closing.signal.aborted) throw unavailable(operation, "it is closed");
    if (this.#session === null) throw this.#trouble(operation);
    return this.#session;
  }

  /** Calls `listener` for the present session and each later one. */
  onSession(listener: (session: MasterSession) => void): void {
    this.#listeners.add(listener);
    if (this.#session !== null) listener(this.#session);
  }

  /** Drops the session: its server is no longer the master. */
  drop(session: MasterSession): void {
    session.commands.destroy();
    session.durable?.connection.destroy();
  }

  async close(): Promise<void> {
    this.#closing.abort(unavailable("close", "it is closed"));
    if (this.#session !== null) this.drop(this.#session);
    this.#session = null;
    await this.#keeping;
  }

  /** The first session. A server that is just starting is tried again. */
  async #first(signal: AbortSignal): Promise<MasterSession> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#connect(signal);
      } catch (error) {
        this.#problem = error;
        if (signal.aborted || !isPassing(error)) throw error;
        await this.#pause(attempt, signal);
      }
    }
  }

  async #keep(first: MasterSession): Promise<void> {
    let session = first;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await this.#use(session);
      for (let attempt = 0; !signal.aborted; attempt += 1) {
        try {
          session = await this.#connect(signal);
          break;
        } catch (error) {
          this.#problem = error;
          if (!signal.aborted) await this.#pause(attempt, signal).catch(() => undefined); // Closing ends the loop.
        }
      }
    }
    this.drop(session);
  }

  /** Offers the session until one of its connections is lost. */
  async #use(session: MasterSession): Promise<void> {
    const { promise: lost, resolve } = Promise.withResolvers<unknown>();
    session.commands.onLost(resolve);
    session.durable?.connection.onLost(resolve);
    this.#session = session;
    for (const listener of this.#listeners) listener(session);
    this.#problem = await lost;
    this.#session = null;
    this.drop(session);
  }

  async #connect(signal: AbortSignal): Promise<MasterSession> {
    const { settings, keys, world } = this.#options;
    const opened: Connection[] = [];
    try {
      const dial = await locateMaster(settings, keys.all[0] ?? "", world, signal);
      const open = async () => {
        const connection = await connect(dial, world, signal);
        opened.push(connection);
        return connection;
      };
      const commands = await open();
      const facts = await this.#greet(commands, showEndpoint(dial.endpoint), signal);
      const { replicasMin, timeoutMs } = settings;
      const durable = replicasMin > 0 ? new DurableCommits(await open(), replicasMin, timeoutMs) : null;
      return { dial, commands, durable, facts };
    } catch (error) {
      for (const connection of opened) connection.destroy();
      throw error;
    }
  }

  async #greet(connection: Connection, place: string, signal: AbortSignal): Promise<ServerFacts> {
    const { settings, keys, world } = this.#options;
    const send = (args: readonly string[]) => connection.send(args, signal);
    const facts = await readFacts(send);
    refuseDangers(place, facts, {
      isCluster: settings.topology.kind === "cluster",
      replicasMin: settings.replicasMin,
    });
    await Promise.all(Object.values(SCRIPTS).map(({ text }) => send(["SCRIPT", "LOAD", text])));
    const count = String(keys.all.length);
    const greeting = [
      "EVALSHA",
      SCRIPTS.greet.hash,
      count,
      ...keys.all,
      epochAfter(null, world.wallMs(), world.randomHex(8)),
      keys.channel,
    ];
    const problem = problemOfGreeting(await send(greeting), place);
    if (problem !== null) throw problem;
    return facts;
  }

  #pause(attempt: number, signal: AbortSignal): Promise<void> {
    const { world } = this.#options;
    const longest = Math.min(RETRY_FIRST_MS * 2 ** attempt, RETRY_MAX_MS);
    return sleep(world, longest * (0.5 + world.random() / 2), signal, { background: true });
  }

  #trouble(operation: string): SandlotError {
    const place = showPlace(this.#options.settings);
    if (this.#problem === null) return unavailable(operation, `redis at ${place} did not answer in time`);
    const trouble = troubleOf(operation, place, this.#problem);
    const { problem } = trouble.details as { readonly problem?: string };
    return unavailable(operation, problem ?? wordOf(this.#problem), this.#problem);
  }
}

function problemOfGreeting(answer: unknown, place: string): SandlotError | null {
  const [kind, what, reader] = Array.isArray(answer) ? answer : [];
  if (kind === "ready" && reader === FORMAT) return null;
  if (kind === "rights") return unavailable("open", `redis at ${place} ${problemOfRights(String(what))}`);
  if (kind === "type") return foreignKeys(place, String(what));
  const problem = `it was written in format ${String(reader)}, but this version knows ${FORMAT}; install a newer Sandlot`;
  return new SandlotError("store_corrupt", { path: place, problem });
}
