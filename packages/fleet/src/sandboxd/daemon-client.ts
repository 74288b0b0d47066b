/**
 * A backend's client of a sandbox's daemon: attaches to it, rebinds it, reads activity without a hold.
 */

import type { Duplex } from "node:stream";
import {
  type DaemonActivity,
  daemonActivitySchema,
  isSandlotError,
  type RebindExpectation,
  renewReplySchema,
  SandlotError,
} from "@sandlot/contract";
import type { World } from "../world/world.ts";
import { ConnectionPool } from "./connection-pool.ts";
import { DaemonSandbox } from "./daemon-sandbox.ts";
import { Calls, type Hold, holdBy, openHold } from "./held-daemon.ts";
import { nothingSchema } from "./replies.ts";
import { type DaemonTarget, Wire } from "./wire.ts";

const RETRY_AFTER_MS = 500;

/** The timers that end a call without a response; by default the machine's. */
export type Deadlines = Pick<World, "timer">;

export interface RebindOptions {
  /** Connections to the daemon. The attachment owns them. */
  readonly pool?: ConnectionPool | undefined;
  /** The file that the daemon has to see first. Without it in time the rebind is `wait_timeout`, and changes nothing. */
  readonly expect?: RebindExpectation | undefined;
}

/** An open hold on a sandbox, with the view that tool code gets. */
export class DaemonAttachment {
  readonly sandbox: DaemonSandbox;
  readonly #wire: Wire;
  readonly #hold: Hold;
  readonly #calls: Calls;

  private constructor(wire: Wire, hold: Hold, world: World) {
    this.#wire = wire;
    this.#hold = hold;
    this.#calls = new Calls(wire, hold, world);
    this.sandbox = new DaemonSandbox(this.#calls);
  }

  /**
   * Rejects with `stale_generation`, or with `sandbox_unreachable` when there is no response: a probe decides whether
   * it is dead. The attachment owns a `pool` that is passed in.
   */
  static async open(
    target: DaemonTarget,
    world: World,
    signal?: AbortSignal,
    pool?: ConnectionPool,
  ): Promise<DaemonAttachment> {
    const wire = new Wire(target, pool ?? new ConnectionPool({ timer: world.timer }));
    try {
      return new DaemonAttachment(wire, await openHold(wire, signal), world);
    } catch (error) {
      wire.close();
      throw known(target, error, signal);
    }
  }

  /** Gives a daemon its new generation and token, and holds it under these, in one step. Idempotent. */
  static async rebind(
    from: DaemonTarget,
    to: DaemonTarget,
    world: World,
    signal?: AbortSignal,
    { pool = new ConnectionPool({ timer: world.timer }), expect }: RebindOptions = {},
  ): Promise<DaemonAttachment> {
    const wire = new Wire(to, pool);
    const { generation, token } = to;
    const body = Buffer.from(JSON.stringify({ generation, token, hold: true, expect }));
    const call = {
      method: "POST",
      path: "/sandlot/rebind",
      body,
      repeatable: true,
      ...(signal && { signal }),
    } as const;
    try {
      const stream = await new Wire(from, pool).openStream(call);
      return new DaemonAttachment(wire, await holdBy(wire, stream, generation, signal), world);
    } catch (error) {
      wire.close();
      throw known(to, error, signal);
    }
  }

  get isOpen(): boolean {
    return this.#hold.ended() === "no";
  }

  /** Resolves when the connection ended. By itself this says nothing about life or death: probe. */
  get closed(): Promise<void> {
    return this.#hold.closed;
  }

  get daemonPid(): number {
    return this.#hold.daemonPid;
  }

  /** A connection to a listener on a port inside. Without a listener it is `sandbox_unreachable`, with that reason. */
  connect(port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.#calls.attempt((wire) => wire.tunnel(port, signal), signal);
  }

  async close(): Promise<void> {
    this.#hold.close();
    this.#wire.close();
  }
}

/** Gives a daemon its new generation and token. Idempotent. */
export async function rebindDaemon(
  from: DaemonTarget,
  to: { readonly generation: number; readonly token: string },
  signal?: AbortSignal,
  deadlines?: Deadlines,
): Promise<void> {
  const { generation, token } = to;
  await once(from, signal, deadlines, (wire) =>
    wire.post(nothingSchema, "/sandlot/rebind", { generation, token }, signal),
  );
}

/** Requests until the daemon's request path is compiled, so that the first caller does not wait for that. */
const AHEAD_ROUNDS = 12;

/** Connects to a daemon that a caller will use soon: one connection for the hold, and one for the first request. */
export async function prewarm(target: DaemonTarget, deadlines?: Deadlines): Promise<ConnectionPool> {
  const pool = new ConnectionPool(deadlines);
  const wire = new Wire(target, pool);
  const renewed = () => wire.post(renewReplySchema, "/sandlot/renew", {});
  try {
    for (let round = 0; round < AHEAD_ROUNDS; round++) await Promise.all([renewed(), renewed()]);
    return pool;
  } catch (error) {
    wire.close();
    throw known(target, error, undefined);
  }
}

/** The activity inside, without a hold. */
export function readActivity(
  target: DaemonTarget,
  signal?: AbortSignal,
  deadlines?: Deadlines,
): Promise<DaemonActivity> {
  const call = { method: "GET", path: "/sandlot/activity", ...(signal && { signal }) } as const;
  return once(target, signal, deadlines, (wire) => wire.ask(daemonActivitySchema, call));
}

/** Renews a sandbox: its daemon learns that the fleet still wants it. */
export async function renewDaemon(target: DaemonTarget, signal?: AbortSignal, deadlines?: Deadlines): Promise<void> {
  await once(target, signal, deadlines, (wire) => wire.post(renewReplySchema, "/sandlot/renew", {}, signal));
}

async function once<T>(
  target: DaemonTarget,
  signal: AbortSignal | undefined,
  deadlines: Deadlines | undefined,
  work: (wire: Wire) => Promise<T>,
): Promise<T> {
  const wire = new Wire(target, new ConnectionPool(deadlines));
  try {
    return await work(wire);
  } catch (error) {
    throw known(target, error, signal);
  } finally {
    wire.close();
  }
}

function known({ sandboxId }: DaemonTarget, error: unknown, signal: AbortSignal | undefined): unknown {
  if (isSandlotError(error) || signal?.aborted === true) return error;
  const problem = error instanceof Error ? error.message : String(error);
  return new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
}
