/**
 * A bounded set of connections, each lent to one call at a time.
 *
 * - A call takes an idle connection, opens another below the limit, or waits in line until its signal aborts.
 * - A connection that cannot be opened fails its call at once. Nothing waits for a server to come back.
 * - After a failure that concerns the server, the idle connections go that have answered nothing since the failed call
 *   began: they lead to the same dead or demoted server, and each would cost another call its deadline. Those that have
 *   answered lead to a server that is alive and slow. Opening all of them again would make it slower still.
 */

import type { Connection } from "./connection.ts";
import { noAnswer, ServerFailure } from "./connection.ts";

export interface PoolOptions {
  readonly max: number;
  /** For messages. */
  readonly place: string;
  readonly open: (signal: AbortSignal) => Promise<Connection>;
  readonly monotonicMs: () => number;
}

/** Calls in line. More than these could not be served before their deadlines. */
const WAITING_MAX = 1_000;
/** Failures of one statement, after which connection and server are fine, by class of SQLSTATE. 53100 is a full disk. */
const STATEMENT_FAILURES = /^(?:SL|22|23|40|42|53100|57014|55P03)/;

interface Waiter {
  readonly serve: (connection: Connection | null) => void;
}

interface Idle {
  readonly connection: Connection;
  /** When its last call ended. */
  readonly answeredAt: number;
}

export class ConnectionPool {
  readonly #options: PoolOptions;
  #idle: Idle[] = [];
  readonly #lent = new Set<Connection>();
  readonly #waiting: Waiter[] = [];
  /** Open connections and those being opened. */
  #count = 0;
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Runs `work` with a connection. Rejects with a `ServerFailure`. */
  async use<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = await this.#take(signal);
    const begunAt = this.#options.monotonicMs();
    let hasAnswered = true;
    try {
      return await work(connection);
    } catch (error) {
      if (!(error instanceof ServerFailure && STATEMENT_FAILURES.test(error.failure.code ?? ""))) {
        hasAnswered = false;
        connection.destroy();
        this.#dropIdle(({ answeredAt }) => answeredAt < begunAt);
      }
      throw error;
    } finally {
      this.#giveBack(connection, hasAnswered);
    }
  }

  /** Closes connections that were idle for `idleMs`. */
  trim(idleMs: number): void {
    const before = this.#options.monotonicMs() - idleMs;
    this.#dropIdle(({ answeredAt }) => answeredAt < before);
  }

  /** Calls under way fail. */
  close(): void {
    this.#closed = true;
    this.#dropIdle(() => true);
    for (const connection of this.#lent) connection.destroy();
    for (const waiter of this.#waiting.splice(0)) waiter.serve(null);
  }

  async #take(signal: AbortSignal): Promise<Connection> {
    this.#requireOpen();
    let idle = this.#idle.pop();
    while (idle !== undefined && !idle.connection.isUsable) {
      this.#count -= 1;
      idle = this.#idle.pop();
    }
    if (idle !== undefined) return this.#lend(idle.connection);
    if (this.#count < this.#options.max) {
      this.#count += 1;
      return this.#openCounted(signal);
    }
    const served = await this.#wait(signal);
    // A place without a connection: the one before was broken.
    return served === null ? this.#openCounted(signal) : this.#lend(served);
  }

  async #openCounted(signal: AbortSignal): Promise<Connection> {
    try {
      this.#requireOpen();
      const connection = await this.#options.open(signal);
      if (this.#closed) connection.destroy();
      this.#requireOpen();
      return this.#lend(connection);
    } catch (error) {
      this.#freePlace();
      throw error;
    }
  }

  #lend(connection: Connection): Connection {
    this.#lent.add(connection);
    return connection;
  }

  /** Resolves with `null` for a place in which a connection may be opened. */
  #wait(signal: AbortSignal): Promise<Connection | null> {
    const { max, place } = this.#options;
    const problem = `all ${max} connections to ${place} are in use; raise store.poolMax, or look why the server is slow`;
    if (signal.aborted) throw new ServerFailure(noAnswer(place));
    if (this.#waiting.length >= WAITING_MAX) throw new ServerFailure({ problem, code: null });
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        reject(new ServerFailure({ problem, code: null }));
      };
      const waiter: Waiter = {
        serve: (connection) => {
          signal.removeEventListener("abort", onAbort);
          resolve(connection);
        },
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#waiting.push(waiter);
    });
  }

  #giveBack(connection: Connection, hasAnswered: boolean): void {
    this.#lent.delete(connection);
    if (this.#closed || !hasAnswered) connection.destroy();
    const waiter = connection.isUsable ? this.#waiting.shift() : undefined;
    if (!connection.isUsable) this.#freePlace();
    else if (waiter !== undefined) waiter.serve(connection);
    else this.#idle.push({ connection, answeredAt: this.#options.monotonicMs() });
  }

  /** Gives the place of a broken connection to the next in line. */
  #freePlace(): void {
    const waiter = this.#waiting.shift();
    if (waiter === undefined) this.#count -= 1;
    else waiter.serve(null);
  }

  #dropIdle(isDropped: (idle: Idle) => boolean): void {
    const dropped = this.#idle.filter(isDropped);
    this.#idle = this.#idle.filter((idle) => !dropped.includes(idle));
    this.#count -= dropped.length;
    for (const { connection } of dropped) connection.destroy();
  }

  #requireOpen(): void {
    if (this.#closed) throw new ServerFailure({ problem: "it is closed", code: null });
  }
}
