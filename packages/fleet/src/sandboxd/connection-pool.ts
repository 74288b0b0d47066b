/**
 * Keep-alive connections to one daemon.
 *
 *   `send`        a request whose response is read whole
 *   `openStream`  a request whose response does not end; its connection leaves the pool and belongs to the caller
 *   `agent`       node:http, for responses that are read as they arrive
 *
 * Considered: `node:http`, whose agent, request, response and two streams cost a short command a tenth of its time (exec in a
 * Docker sandbox fell from 3.1 to 2.7 ms, together with two smaller changes), and undici, which loads in 90 to 180 ms with
 * every `sandlot exec`. The benchmark limit `docker/exec-true` (0.067 of the Engine API) was set with this pool.
 *
 * Invariants
 * - A connection carries one request at a time. It is closed and never used again after an unexpected byte, an abort or a
 *   missed deadline.
 * - The pool sends nothing twice. The caller decides that (`ConnectionLost.isStaleConnection`).
 * - A connection keeps the process alive while it carries a request, and not while it is idle.
 * - A request with deadlines ends by them: one until the response begins, one from there to its end, however slowly it comes.
 */

import type { Socket } from "node:net";
import { SandlotError } from "@sandlot/contract";
import { systemTimer } from "../world/system-world.ts";
import type { Timer, World } from "../world/world.ts";
import { type DaemonAddress, DaemonAgent, dial } from "./dial.ts";
import {
  type OpenStream,
  type Parsed,
  type PoolResponse,
  ResponseParser,
  UnexpectedResponse,
} from "./response-parser.ts";

export interface PoolRequest {
  /** The lines of the head and the empty line behind them, ready to send. */
  readonly head: string;
  readonly body: Uint8Array | undefined;
  readonly responseMaxBytes: number;
  /** The limit of a response with another status than 200, where that is less. */
  readonly refusalMaxBytes?: number;
  /** Until the first byte of the response. Absent or `null`: no limit. */
  readonly firstByteMs?: number | null;
  /** From its first byte to its last. */
  readonly bodyMs?: number;
  readonly signal: AbortSignal | undefined;
  /** Uses a connection without earlier requests. */
  readonly onNewConnection?: boolean;
}

export interface ConnectionPoolOptions {
  /** How many idle connections are kept. With 0 each request has its own, and none has to be closed. */
  readonly idleMax?: number;
  /** Of every deadline; default the machine's. */
  readonly timer?: World["timer"];
}

interface LossFacts extends ErrorOptions {
  readonly wasKept?: boolean;
  readonly hadBegun?: boolean;
}

/** The connection ended, or could not be made. It says nothing about whether the request was carried out. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
  /** Earlier requests were answered on that connection. So the daemon may have closed it before it saw this request. */
  readonly wasKept: boolean;
  /** A part of a response had arrived. */
  readonly hadBegun: boolean;

  constructor(message: string, { wasKept = false, hadBegun = false, ...options }: LossFacts = {}) {
    super(message, options);
    this.wasKept = wasKept;
    this.hadBegun = hadBegun;
  }

  /** The daemon has probably closed the connection before it saw the request: a new connection may work. */
  get isStaleConnection(): boolean {
    return this.wasKept && !this.hadBegun;
  }
}

/** Each idle connection costs both sides a few kilobytes. */
const IDLE_MAX = 16;
const PROBE_AFTER_MS = 30_000;
/** Sent as one piece with the head: copying costs less than a second piece. */
const ONE_PIECE_MAX_BYTES = 16 * 1024;

export class ConnectionPool {
  readonly agent: DaemonAgent;
  readonly timer: World["timer"];
  readonly #idleMax: number;
  /** The connection used last is used next. */
  readonly #idle: PooledConnection[] = [];
  readonly #all = new Set<PooledConnection>();

  constructor({ idleMax = IDLE_MAX, timer = systemTimer }: ConnectionPoolOptions = {}) {
    this.timer = timer;
    this.agent = new DaemonAgent(idleMax, timer);
    this.#idleMax = idleMax;
  }

  /** Whether there is no connection, idle or busy. */
  get isEmpty(): boolean {
    const { freeSockets, sockets } = this.agent;
    return this.#all.size === 0 && Object.keys(freeSockets).length === 0 && Object.keys(sockets).length === 0;
  }

  /** Rejects with `ConnectionLost`, with `bad_sandbox_response`, or with the reason of an abort. */
  send(address: DaemonAddress, request: PoolRequest): Promise<PoolResponse> {
    return this.#sendOn(address, request, false) as Promise<PoolResponse>;
  }

  /**
   * A request whose response does not end: with 200, its connection leaves the pool and belongs to the caller. Any other
   * response is read whole.
   */
  openStream(address: DaemonAddress, request: PoolRequest): Promise<PoolResponse | OpenStream> {
    return this.#sendOn(address, request, true);
  }

  /** Closes every connection, also the busy ones, but for open streams. */
  destroy(): void {
    this.agent.destroy();
    for (const connection of this.#all) connection.close();
  }

  #sendOn(address: DaemonAddress, request: PoolRequest, isStream: boolean): Promise<PoolResponse | OpenStream> {
    const { signal, onNewConnection } = request;
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const connection = (onNewConnection === true ? undefined : this.#idle.pop()) ?? this.#open(address);
    return connection.send(request, isStream);
  }

  #open(address: DaemonAddress): PooledConnection {
    const connection: PooledConnection = new PooledConnection(dial(address, this.timer), this.timer, {
      onIdle: () => {
        if (this.#idle.length >= this.#idleMax) connection.close();
        else this.#idle.push(connection);
      },
      onGone: () => {
        this.#all.delete(connection);
        const at = this.#idle.indexOf(connection);
        if (at >= 0) this.#idle.splice(at, 1);
      },
    });
    this.#all.add(connection);
    return connection;
  }
}

interface Pending {
  readonly resolve: (response: PoolResponse | OpenStream) => void;
  readonly reject: (error: unknown) => void;
  readonly parser: ResponseParser;
  readonly bodyMs: number | undefined;
  /** The deadline that runs. */
  timer: Timer | undefined;
  hasBodyDeadline: boolean;
  readonly stopListening: () => void;
}

interface ConnectionEvents {
  readonly onIdle: () => void;
  readonly onGone: () => void;
}

class PooledConnection {
  readonly #socket: Socket;
  readonly #timer: World["timer"];
  readonly #events: ConnectionEvents;
  #pending: Pending | null = null;
  #wasKept = false;

  constructor(socket: Socket, timer: World["timer"], events: ConnectionEvents) {
    this.#socket = socket;
    this.#timer = timer;
    this.#events = events;
    socket.setNoDelay(true);
    // Over a network, the kernel's probes notice a peer that vanished.
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    socket.on("data", this.#onData);
    socket.on("error", this.#onError);
    socket.on("end", this.#onEnd);
    socket.on("close", this.#onEnd);
  }

  send(request: PoolRequest, isStream: boolean): Promise<PoolResponse | OpenStream> {
    const { head, body, responseMaxBytes: maxBytes, firstByteMs, bodyMs, signal } = request;
    return new Promise((resolve, reject) => {
      let stopListening = nothing;
      if (signal !== undefined) {
        const onAbort = () => this.#fail(signal.reason);
        signal.addEventListener("abort", onAbort, { once: true });
        stopListening = () => signal.removeEventListener("abort", onAbort);
      }
      const parser = new ResponseParser({ maxBytes, refusalMaxBytes: request.refusalMaxBytes ?? maxBytes, isStream });
      const timer = this.#deadline(firstByteMs ?? undefined, "did not answer");
      this.#pending = { resolve, reject, parser, bodyMs, timer, hasBodyDeadline: false, stopListening };
      this.#socket.ref();
      this.#write(head, body);
    });
  }

  /** Leaves the pool now; the socket closes asynchronously. */
  close(): void {
    this.#events.onGone();
    this.#socket.destroy();
  }

  readonly #onData = (chunk: Buffer): void => {
    const pending = this.#pending;
    // Bytes without a request: the next response on this connection could be a forged one.
    if (pending === null) this.close();
    else this.#take(pending, chunk);
  };

  readonly #onError = (error: Error): void => this.#fail(this.#lost(error));

  readonly #onEnd = (): void => this.#fail(this.#lost(new Error("the answer was cut off")));

  #take(pending: Pending, chunk: Buffer): void {
    let parsed: Parsed | null;
    try {
      parsed = pending.parser.take(chunk);
    } catch (error) {
      this.#fail(toContractError(error));
      return;
    }
    if (parsed === null) {
      this.#expectRest(pending);
      return;
    }
    this.#pending = null;
    pending.timer?.cancel();
    pending.stopListening();
    if ("first" in parsed) this.#handOver(pending, parsed.first);
    else this.#complete(pending, parsed.body);
  }

  /** The deadline for the rest begins with the first piece, and no later piece moves it. */
  #expectRest(pending: Pending): void {
    if (pending.bodyMs === undefined || pending.hasBodyDeadline) return;
    pending.hasBodyDeadline = true;
    pending.timer?.cancel();
    pending.timer = this.#deadline(pending.bodyMs, "did not end its answer");
  }

  #deadline(delayMs: number | undefined, what: string): Timer | undefined {
    if (delayMs === undefined) return undefined;
    // `hadBegun`: the daemon may be working on the request, so it must not be sent again.
    const late = () => this.#fail(new ConnectionLost(`the daemon ${what} within ${delayMs} ms`, { hadBegun: true }));
    return this.#timer(delayMs, late);
  }

  #complete({ parser, resolve }: Pending, body: Buffer): void {
    const { status, isLast } = parser;
    this.#socket.unref();
    this.#wasKept = true;
    // A response that came before all of the request was sent: the rest of the request must not start the next one.
    if (isLast || this.#socket.writableLength > 0) this.close();
    else this.#events.onIdle();
    resolve({ status, body });
  }

  #handOver({ parser, resolve }: Pending, first: Buffer): void {
    const socket = this.#socket;
    socket.pause();
    socket.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onEnd);
    // The new owner adds its own listener; this one covers an error before that.
    socket.off("error", this.#onError).on("error", nothing);
    this.#events.onGone();
    resolve({ status: 200, header: (name) => parser.header(name), first, socket });
  }

  #fail(error: unknown): void {
    const pending = this.#pending;
    this.#pending = null;
    this.close();
    pending?.timer?.cancel();
    pending?.stopListening();
    pending?.reject(error);
  }

  #lost(cause: Error): ConnectionLost {
    const hadBegun = this.#pending?.parser.hasBegun ?? false;
    return new ConnectionLost(cause.message, { cause, wasKept: this.#wasKept, hadBegun });
  }

  #write(head: string, body: Uint8Array | undefined): void {
    const socket = this.#socket;
    if (body === undefined) socket.write(head, "latin1");
    else if (body.length <= ONE_PIECE_MAX_BYTES) socket.write(joined(head, body));
    else {
      socket.cork();
      socket.write(head, "latin1");
      socket.write(body);
      socket.uncork();
    }
  }
}

function joined(head: string, body: Uint8Array): Buffer {
  const all = Buffer.allocUnsafe(head.length + body.length);
  all.write(head, 0, "latin1");
  all.set(body, head.length);
  return all;
}

/** An unexpected response means that the peer is not our daemon. */
function toContractError(error: unknown): unknown {
  if (!(error instanceof UnexpectedResponse)) return error;
  if (error.isTooLong) return new SandlotError("bad_sandbox_response", { problem: error.message });
  return new ConnectionLost(error.message, { cause: error, hadBegun: true });
}

function nothing(): void {}
