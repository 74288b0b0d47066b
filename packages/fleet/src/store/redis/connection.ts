/**
 * One connection to one Redis server.
 *
 * Invariants
 * - A connection is never reconnected. Once lost it stays lost, and every call on it rejects: `MasterLink` opens another,
 *   to the server that is the master then. So no command is queued for a later connection.
 * - At most `UNDER_WAY_MAX` calls are under way. Further ones are refused at once.
 * - A call ends when its signal aborts. If it was already sent, it may still take effect.
 * - A server that answers nothing for `timeoutMs` while calls are under way is given up, and with it the connection.
 */

import type { createClient, ErrorReply } from "@redis/client";
import { importPeer } from "../../optional-peer.ts";
import { abortable, within } from "../../world/waiting.ts";
import type { Timer, World } from "../../world/world.ts";
import { redact, type Secrets } from "./secrets.ts";
import { type Endpoint, showEndpoint } from "./settings.ts";

/** More than any instance has at once; fewer than would fill memory while a server hangs. */
const UNDER_WAY_MAX = 4_096;

export interface Dial {
  readonly endpoint: Endpoint;
  readonly user: string | null;
  readonly secrets: Secrets;
  readonly database: number;
  /** For opening the connection, and for silence on it. */
  readonly timeoutMs: number;
}

export type Argument = string;
type Client = ReturnType<typeof createClient>;

/** Rejects with an error whose text has no password. */
export async function connect(dial: Dial, world: World, signal: AbortSignal): Promise<Connection> {
  const peer = await importPeer("@redis/client", "the Redis store", () => import("@redis/client"));
  const { createClient, ErrorReply } = peer;
  const client: Client = createClient({
    socket: socketOptions(dial),
    ...(dial.secrets.password !== null && { username: dial.user ?? "default", password: dial.secrets.password }),
    database: dial.database,
    name: "sandlot",
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: "disabled",
    commandsQueueMaxLength: UNDER_WAY_MAX,
    // Deadlines are those of the callers.
    commandOptions: { timeout: 0 },
  });
  const connection = new Connection(client, ErrorReply, dial, world);
  const late = () => new Error(`Connection timeout: no answer in ${dial.timeoutMs} ms`);
  try {
    await within(world, dial.timeoutMs, signal, late, () => client.connect());
    return connection;
  } catch (error) {
    connection.destroy();
    throw withoutSecrets(error, dial.secrets);
  }
}

function socketOptions({ endpoint, secrets, timeoutMs }: Dial) {
  const common = { connectTimeout: timeoutMs, reconnectStrategy: false } as const;
  if ("path" in endpoint) return { ...common, path: endpoint.path, tls: false } as const;
  const { host, port } = endpoint;
  return secrets.tls === null
    ? { ...common, host, port }
    : { ...common, host, port, tls: true as const, ...secrets.tls };
}

/** An old server answers `HELLO … AUTH` with an error that repeats its arguments. */
function withoutSecrets(error: unknown, secrets: Secrets): unknown {
  if (!(error instanceof Error) || redact(error.message, secrets) === error.message) return error;
  return new Error(redact(error.message, secrets));
}

export class Connection {
  readonly endpoint: Endpoint;
  readonly #client: Client;
  readonly #ErrorReply: typeof ErrorReply;
  readonly #world: World;
  readonly #timeoutMs: number;
  readonly #onLost = new Set<(reason: unknown) => void>();
  #lost: { readonly reason: unknown } | null = null;
  #underWay = 0;
  /** Since when calls are under way without any answer. */
  #silentSince = 0;
  #watchdog: Timer | null = null;

  constructor(client: Client, errorReply: typeof ErrorReply, { endpoint, timeoutMs }: Dial, world: World) {
    this.endpoint = endpoint;
    this.#client = client;
    this.#ErrorReply = errorReply;
    this.#world = world;
    this.#timeoutMs = timeoutMs;
    client.on("error", (error) => this.#lose(error));
    client.on("terminated", (cause) => this.#lose(cause));
    client.on("end", () => this.#lose(new Error("the connection has ended")));
  }

  get isLost(): boolean {
    return this.#lost !== null;
  }

  /** Calls `listener` once, when the connection is lost or was already. */
  onLost(listener: (reason: unknown) => void): void {
    if (this.#lost === null) this.#onLost.add(listener);
    else listener(this.#lost.reason);
  }

  /** Rejects with an error reply of the server, an error of the connection, or the signal's reason. */
  async send(args: readonly Argument[], signal: AbortSignal): Promise<unknown> {
    if (this.#lost !== null) throw this.#lost.reason;
    if (signal.aborted) throw signal.reason;
    if (this.#underWay === 0) this.#silentSince = this.#world.monotonicMs();
    this.#underWay += 1;
    this.#watch();
    const sent = this.#client.sendCommand(args, { abortSignal: signal });
    sent.then(
      () => this.#answered(true),
      (error: unknown) => this.#answered(error instanceof this.#ErrorReply),
    );
    return abortable(sent, signal);
  }

  /** A call that the client refused or gave up says nothing about the server. */
  #answered(byServer: boolean): void {
    this.#underWay -= 1;
    if (byServer) this.#silentSince = this.#world.monotonicMs();
  }

  /** `listener` gets every message of the channel until the connection is lost. */
  async subscribe(channel: string, listener: (message: string) => void, signal: AbortSignal): Promise<void> {
    const late = () => new Error(`no answer to SUBSCRIBE in ${this.#timeoutMs} ms`);
    await within(this.#world, this.#timeoutMs, signal, late, () => this.#client.subscribe(channel, listener));
  }

  destroy(): void {
    this.#lose(new Error("the connection was closed"));
  }

  #lose(reason: unknown): void {
    if (this.#lost !== null) return;
    this.#lost = { reason };
    this.#watchdog?.cancel();
    this.#client.destroy();
    for (const listener of this.#onLost) listener(reason);
    this.#onLost.clear();
  }

  #watch(): void {
    if (this.#watchdog !== null) return;
    const look = () => {
      this.#watchdog = null;
      if (this.#underWay === 0 || this.#lost !== null) return;
      const silentMs = this.#world.monotonicMs() - this.#silentSince;
      if (silentMs >= this.#timeoutMs)
        return this.#lose(new Error(`${showEndpoint(this.endpoint)} has not answered for ${Math.round(silentMs)} ms`));
      this.#watchdog = this.#world.timer(this.#timeoutMs - silentMs, look, { background: true });
    };
    this.#watchdog = this.#world.timer(this.#timeoutMs, look, { background: true });
  }
}
