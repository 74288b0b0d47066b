/**
 * One connection to the server, for one call at a time.
 *
 * - A call that is aborted ends at once, destroys the connection and asks the server to stop (`cancel-request.ts`): its
 *   answer would otherwise be read by the next call. The server also notices a closed connection within a second
 *   (`client_connection_check_interval`), but not while a commit waits for a replica.
 * - A commit whose wait for a replica was cut short is an error, although the server answers it.
 * - Errors never contain rows or passwords: the driver's own error objects stay here.
 */

import { Socket } from "node:net";
import type { ClientConfig, Client as PgClient } from "pg";
import { importPeer } from "../../optional-peer.ts";
import type { BackendKey } from "./cancel-request.ts";
import { type Failure, failureOf, UNCONFIRMED, UNREPLICATED } from "./problem.ts";

export interface Connection {
  /** Rejects with a `ServerFailure`. */
  query<Row extends object>(sql: string, values?: readonly unknown[], call?: Call): Promise<readonly Row[]>;
  /** `false` after the first failure of the connection itself. */
  readonly isUsable: boolean;
  destroy(): void;
}

export interface Call {
  /** A statement with a name is parsed once per connection. */
  readonly name?: string;
  readonly signal?: AbortSignal;
  /** When it aborts, the server is asked to stop, and its answer is awaited. */
  readonly stop?: AbortSignal;
}

export interface ConnectionEvents {
  /** Once, when the connection ended by itself. */
  onLost?(failure: Failure): void;
  onTopics?(payload: string): void;
  /** The server has to be asked to stop what this process of it does. */
  onStop?(key: BackendKey): void;
}

/** A call that failed: what a person can do about it, without the driver's own error. */
export class ServerFailure extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.problem);
    this.name = "ServerFailure";
    this.failure = failure;
  }
}

/** Opens a connection. Rejects with a `ServerFailure`, also when `signal` aborts. */
export async function openConnection(
  config: ClientConfig,
  place: string,
  signal: AbortSignal,
  events: ConnectionEvents = {},
): Promise<Connection> {
  const { default: pg } = await importPeer("pg", "The PostgreSQL store", () => import("pg"));
  const socket = new Socket();
  const client = new pg.Client({ ...config, stream: () => socket });
  const connection = new DriverConnection(client, socket, place, events);
  await abortable(
    signal,
    place,
    () => connection.destroy(),
    () => client.connect(),
  );
  return connection;
}

class DriverConnection implements Connection {
  isUsable = true;
  readonly #client: PgClient;
  readonly #socket: Socket;
  readonly #place: string;
  readonly #events: ConnectionEvents;
  #isUnreplicated = false;

  constructor(client: PgClient, socket: Socket, place: string, events: ConnectionEvents) {
    this.#client = client;
    this.#socket = socket;
    this.#place = place;
    this.#events = events;
    client.on("error", (error) => this.#lose(failureOf(error, place)));
    client.on("end", () => this.#lose({ problem: `the server at ${place} closed the connection`, code: null }));
    client.on("notification", ({ payload }) => events.onTopics?.(payload ?? "*"));
    client.on("notice", ({ message }) => {
      if (message !== undefined && UNREPLICATED.test(message)) this.#isUnreplicated = true;
    });
  }

  async query<Row extends object>(
    text: string,
    values: readonly unknown[] = [],
    { name, signal, stop }: Call = {},
  ): Promise<readonly Row[]> {
    const config = { text, values: [...values], ...(name !== undefined && { name }) };
    const run = () =>
      values.length === 0 && name === undefined ? this.#client.query(text) : this.#client.query(config);
    let isStopped = false;
    const onStop = () => {
      isStopped = true;
      this.#stop();
    };
    stop?.addEventListener("abort", onStop, { once: true });
    const giveUp = () => {
      this.destroy();
      this.#stop();
    };
    try {
      const result = await abortable(signal, this.#place, giveUp, run);
      this.#requireReplicated();
      // A text of several statements has a list of results, which no caller reads.
      return Array.isArray(result) ? [] : (result.rows as Row[]);
    } finally {
      stop?.removeEventListener("abort", onStop);
      // The request may arrive later, and would stop the next statement.
      if (isStopped) this.destroy();
    }
  }

  #requireReplicated(): void {
    if (!this.#isUnreplicated) return;
    this.destroy();
    const problem = `no replica of the server at ${this.#place} confirmed the commit in time`;
    throw new ServerFailure({ problem, code: UNCONFIRMED });
  }

  #stop(): void {
    // The driver's types lack both.
    const processId: unknown = Reflect.get(this.#client, "processID");
    const secretKey: unknown = Reflect.get(this.#client, "secretKey");
    if (typeof processId === "number" && typeof secretKey === "number") this.#events.onStop?.({ processId, secretKey });
  }

  destroy(): void {
    this.isUsable = false;
    this.#socket.destroy();
  }

  #lose(failure: Failure): void {
    if (!this.isUsable) return;
    this.destroy();
    this.#events.onLost?.(failure);
  }
}

/** Runs one call. When `signal` aborts, `stop` ends the connection and the call rejects at once. */
async function abortable<T>(
  signal: AbortSignal | undefined,
  place: string,
  stop: () => void,
  run: () => Promise<T>,
): Promise<T> {
  if (signal?.aborted === true) {
    stop();
    throw new ServerFailure(noAnswer(place));
  }
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => {
      stop();
      reject(new ServerFailure(noAnswer(place)));
    };
    signal?.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([run(), aborted]);
  } catch (error) {
    throw error instanceof ServerFailure ? error : new ServerFailure(failureOf(error, place));
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
}

export function noAnswer(place: string): Failure {
  return {
    problem: `the server at ${place} did not answer in time; look whether it is overloaded, stopped or cut off`,
    code: null,
  };
}
