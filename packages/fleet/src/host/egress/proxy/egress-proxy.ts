/**
 * The egress of one sandbox: an HTTP proxy, on the sandbox's own loopback or on a unix socket.
 *
 *   GET http://host/…   forwarding.ts   decided, rebuilt, passed on
 *   CONNECT host:port   tunnel.ts       decided, then bytes; or interception.ts where a secret is bound over TLS
 *   GET /               replies.ts      what is allowed, what was refused
 *
 * Invariants
 * - Every connection goes through `Dialer`, which decides by name and by address.
 * - Each refusal is reported twice: to the client as text, and to `onRefused`.
 * - The value of a secret is sent only to its host. It is in no event, no reply and no error.
 * - One sandbox, one proxy: limits and counters are the sandbox's own.
 */

import { chmodSync, renameSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Server as NetServer, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { SandlotError, SOCKET_PATH_MAX_BYTES } from "@sandlot/contract";
import { type Authority, parseAuthority } from "../../../backend/network/host-name.ts";
import {
  type CompiledPolicy,
  compilePolicy,
  type NetworkPolicy,
  rulesFor,
  secretsFor,
} from "../../../backend/network/policy.ts";
import type { World } from "../../../world/world.ts";
import type { Authority as CertificateAuthority } from "../certificates/authority.ts";
import { EGRESS_LIMITS, type EgressLimits } from "../limits.ts";
import { isRefused, type Refusal } from "../rules/decide.ts";
import { type Resolver, systemResolver } from "../rules/resolver.ts";
import { Dialer, Refused } from "./dialer.ts";
import { boundSecrets, forward } from "./forwarding.ts";
import { Interception } from "./interception.ts";
import { type OnRefused, RefusalLog } from "./refusal-log.ts";
import { RegistryGate } from "./registry-gate.ts";
import { plain, type Reply, replyTo, sendRawReply, sendReply, statusPage } from "./replies.ts";
import { tie } from "./tunnel.ts";
import { Upstream } from "./upstream.ts";

export interface EgressProxyOptions {
  readonly policy: NetworkPolicy;
  readonly world: World;
  readonly resolver?: Resolver | undefined;
  readonly onRefused?: OnRefused | undefined;
  readonly limits?: Partial<EgressLimits> | undefined;
  /** Needed where a secret is bound over TLS: the sandbox trusts its certificate. */
  readonly authority?: CertificateAuthority | undefined;
  /** Additional certificates to trust for upstream hosts, in PEM. */
  readonly upstreamCa?: readonly string[] | undefined;
}

export interface EgressStats {
  readonly openConnections: number;
  readonly requests: number;
  readonly tunnels: number;
  readonly refused: number;
  /** Connections closed because there were too many. */
  readonly dropped: number;
  /** Bytes out of the sandbox, and into it. */
  readonly bytesUp: number;
  readonly bytesDown: number;
}

export const NO_STATS: EgressStats = {
  openConnections: 0,
  requests: 0,
  tunnels: 0,
  refused: 0,
  dropped: 0,
  bytesUp: 0,
  bytesDown: 0,
};

export class EgressProxy {
  readonly #policy: CompiledPolicy;
  readonly #options: EgressProxyOptions;
  readonly #limits: EgressLimits;
  readonly #dialer: Dialer;
  readonly #plainUpstream: Upstream;
  readonly #secureUpstream: Upstream;
  readonly #registries: RegistryGate;
  readonly #interception: Interception | null;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  readonly #halfOpen = new WeakSet<Socket>();
  readonly #refusals: RefusalLog;
  readonly #counts = { ...NO_STATS };
  #isTracking = false;

  constructor(options: EgressProxyOptions) {
    this.#options = options;
    this.#policy = compilePolicy(options.policy);
    const limits = { ...EGRESS_LIMITS, ...options.limits };
    this.#limits = limits;
    const { world, resolver = systemResolver, authority } = options;
    const extraCa = [...(options.upstreamCa ?? []), ...(options.policy.registries?.trusted ?? [])];
    this.#refusals = new RefusalLog(world, limits, options.onRefused);
    this.#dialer = new Dialer({ policy: this.#policy, resolver, world, limits });
    this.#plainUpstream = new Upstream({ dialer: this.#dialer, world, limits, via: "http" });
    this.#secureUpstream = new Upstream({ dialer: this.#dialer, world, limits, via: "https", extraCa });
    const mirrors = options.policy.registries?.mirrors ?? [];
    this.#registries = new RegistryGate({ policy: this.#policy, mirrors, resolver, world, limits, extraCa });
    this.#interception = this.#intercept(authority);
    this.#server = this.#makeServer();
  }

  /**
   * Listens at the path and replaces a previous listener without a gap. Its open connections stay with it; new
   * connections come here.
   */
  async listen(socketPath: string): Promise<void> {
    checkPath(socketPath);
    const fresh = `${socketPath}.${this.#options.world.randomHex(3)}`;
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(fresh, () => {
        this.#server.off("error", reject);
        resolve();
      });
    });
    // The sandbox has another uid. The directory decides who can reach the socket.
    chmodSync(fresh, 0o666);
    renameSync(fresh, socketPath);
  }

  /** Accepts connections from a listening socket, and closes it in the end. */
  async adopt(listening: NetServer): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(listening, () => {
        this.#server.off("error", reject);
        resolve();
      });
    });
  }

  /** Serves a connection that another listener accepted. */
  accept(socket: Socket): void {
    if (this.#clients.size >= this.#limits.connectionsMax) {
      this.#counts.dropped += 1;
      socket.destroy();
      return;
    }
    this.#trackAccepted();
    this.#server.emit("connection", socket);
  }

  /** node:http begins to look for slow requests when its server listens; this one may never do so. */
  #trackAccepted(): void {
    if (this.#isTracking || this.#server.listening) return;
    this.#isTracking = true;
    this.#server.emit("listening");
  }

  stats(): EgressStats {
    const live = [...this.#clients];
    return {
      ...this.#counts,
      openConnections: live.length,
      bytesUp: live.reduce((sum, { bytesRead }) => sum + bytesRead, this.#counts.bytesUp),
      bytesDown: live.reduce((sum, { bytesWritten }) => sum + bytesWritten, this.#counts.bytesDown),
    };
  }

  /** Ends every connection. The socket's path stays, because a successor may use it; `remove` deletes it. */
  async close(remove?: { readonly socketPath: string }): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const client of this.#clients) client.destroy();
    this.#plainUpstream.close();
    this.#secureUpstream.close();
    this.#registries.close();
    await closed;
    if (remove !== undefined) rmSync(remove.socketPath, { force: true });
  }

  #makeServer(): Server {
    const { headBytesMax, headTimeoutMs, keepAliveTimeoutMs, connectionsMax } = this.#limits;
    const server = createServer({
      maxHeaderSize: headBytesMax,
      headersTimeout: headTimeoutMs,
      keepAliveTimeout: keepAliveTimeoutMs,
      requestTimeout: 0, // An upload has no time limit; only idleness ends it.
      connectionsCheckingInterval: Math.min(5_000, headTimeoutMs),
      insecureHTTPParser: false,
    });
    server.maxConnections = connectionsMax;
    server.on("connection", (socket) => this.#onConnection(socket));
    server.on("drop", () => {
      this.#counts.dropped += 1;
    });
    server.on("request", (request, response) => this.#onRequest(request, response));
    server.on("connect", (request, socket, head) => void this.#onConnect(request, socket as Socket, head));
    server.on("clientError", (error, socket) => onClientError(error, socket));
    return server;
  }

  #intercept(authority: CertificateAuthority | undefined): Interception | null {
    const { secrets, registries } = this.#policy;
    if (![...secrets, ...registries].some(({ via }) => via === "https")) return null;
    if (authority === undefined) {
      const problem = "secrets over https need a certificate authority";
      throw new SandlotError("config_invalid", { path: "network.secrets", problem });
    }
    return new Interception({
      policy: this.#policy,
      authority,
      registries: this.#registries,
      upstream: this.#secureUpstream,
      world: this.#options.world,
      limits: this.#limits,
      replyTo: (error) => this.#replyTo(error),
    });
  }

  #onConnection(socket: Socket): void {
    this.#clients.add(socket);
    const { idleTimeoutMs, halfOpenTimeoutMs } = this.#limits;
    const idleMs = (): number => (this.#halfOpen.has(socket) ? halfOpenTimeoutMs : idleTimeoutMs);
    watchIdle(this.#options.world, socket, idleMs, () => socket.destroy());
    socket.once("close", () => {
      this.#clients.delete(socket);
      this.#counts.bytesUp += socket.bytesRead;
      this.#counts.bytesDown += socket.bytesWritten;
    });
  }

  #onRequest(request: IncomingMessage, response: ServerResponse): void {
    this.#counts.requests += 1;
    const asked = readAbsoluteForm(request, this.#policy, this.#refusals.latest);
    if ("reply" in asked) {
      sendReply(response, asked.reply);
      return;
    }
    const fail = (error: unknown): void => sendReply(response, this.#replyTo(error));
    const registry = this.#registries.decide("http", request, asked.target, asked.path);
    if (registry !== null) {
      if (isRefused(registry)) fail(new Refused(registry));
      else forward(request, response, this.#registries.forwarding(registry, { ...asked, fail }));
      return;
    }
    forward(request, response, {
      ...asked,
      defaultPort: 80,
      bound: boundSecrets(secretsFor(this.#policy, "http", asked.target.host, asked.target.port)),
      upstream: this.#plainUpstream,
      fail,
    });
  }

  async #onConnect(request: IncomingMessage, client: Socket, head: Buffer): Promise<void> {
    this.#counts.tunnels += 1;
    client.on("error", () => client.destroy());
    const target = parseAuthority(request.url ?? "");
    if (target === null) {
      this.#turnAway(client, plain(400, "CONNECT needs a host and a port, such as example.org:443."));
      return;
    }
    try {
      if (head.length > 0) client.unshift(head);
      if (this.#interception?.wants(target) === true) await this.#openIntercepted(client, target, this.#interception);
      else await this.#openTunnel(client, target);
    } catch (error) {
      this.#turnAway(client, this.#replyTo(error));
    }
  }

  /** Drops what the client still sends, and closes after a short time. */
  #turnAway(client: Socket, reply: Reply): void {
    sendRawReply(client, reply);
    client.resume();
    this.#halfOpen.add(client);
  }

  async #openIntercepted(client: Socket, target: Authority, interception: Interception): Promise<void> {
    const byRegistry = this.#registries.has("https", target);
    const byRule = rulesFor(this.#policy, target.host, target.port).length > 0;
    await (byRegistry && !byRule ? this.#registries.check(target) : this.#dialer.check(target));
    if (client.destroyed) return;
    client.write(ESTABLISHED);
    interception.accept(client, target);
  }

  async #openTunnel(client: Socket, target: Authority): Promise<void> {
    const upstream = await this.#dialer.dial(target);
    if (client.destroyed) {
      upstream.destroy();
      return;
    }
    client.write(ESTABLISHED);
    tie(client, upstream, { onHalfOpen: () => this.#halfOpen.add(client) });
  }

  #replyTo(error: unknown): Reply {
    if (error instanceof Refused) {
      this.#counts.refused += 1;
      this.#refusals.note(error.refusal);
    }
    return replyTo(error, this.#policy);
  }
}

const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";

/** The target and the path of a request to a proxy, or a reply when it is no such request. */
function readAbsoluteForm(
  request: IncomingMessage,
  policy: CompiledPolicy,
  refusals: readonly Refusal[],
): { target: Authority; path: string } | { reply: Reply } {
  const url = request.url ?? "";
  if (url === "/" && request.method === "GET") return { reply: statusPage(policy, refusals) };
  if (request.method === "TRACE") return { reply: plain(405, "TRACE is not passed on.") };
  const parts = /^http:\/\/([^/?#]*)([/?][^#]*)?$/i.exec(url);
  const target = parts === null ? null : parseAuthority(parts[1] ?? "", 80);
  if (target === null) {
    const text = "The proxy takes http://host/path without user information; for https use CONNECT.";
    return { reply: plain(400, text) };
  }
  const rest = parts?.[2] ?? "/";
  return { target, path: rest.startsWith("/") ? rest : `/${rest}` };
}

function onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const status = CLIENT_ERRORS[error.code ?? ""] ?? 400;
  sendRawReply(socket, plain(status, "The request could not be understood, was too large, or took too long."));
}

const CLIENT_ERRORS: Readonly<Record<string, number>> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 };

function checkPath(path: string): void {
  const sizeBytes = Buffer.byteLength(path);
  if (sizeBytes + ".123456".length <= SOCKET_PATH_MAX_BYTES) return;
  throw new SandlotError("invalid_path", { path, problem: `${sizeBytes} bytes are too many for the path of a socket` });
}

/** Calls `onIdle` when no byte has passed for `idleMs()`, noticed within a quarter more. Stops by itself when the socket closes. */
function watchIdle(world: World, socket: Socket, idleMs: () => number, onIdle: () => void): void {
  let seenBytes = -1;
  let seenAtMs = world.monotonicMs();
  const look = (): void => {
    const bytes = socket.bytesRead + socket.bytesWritten;
    const nowMs = world.monotonicMs();
    if (bytes !== seenBytes) {
      seenBytes = bytes;
      seenAtMs = nowMs;
    } else if (nowMs - seenAtMs >= idleMs()) {
      onIdle();
      return;
    }
    timer = world.timer(idleMs() / 4, look, { background: true });
  };
  let timer = world.timer(idleMs() / 4, look, { background: true });
  socket.once("close", () => timer.cancel());
}
