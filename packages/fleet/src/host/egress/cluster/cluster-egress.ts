/**
 * The egress proxy of a cluster: one process for many sandboxes. Each connection proves the key of its sandbox (TLS), and
 * the identity of that key names the sandbox and the hash of its blueprint. So the proxy needs the fleet's configuration
 * and keys only, and no store.
 *
 *   sandbox ─ TLS, identity …egress… ─▶ the sandbox's own `EgressProxy`: policy, secrets, limits, counters
 *   gateway ─ TLS, identity …refusals… ─▶ GET /refusals?epoch=&from=        what was refused (`RefusalRing`)
 *   anyone  ─ the canary port ─▶ closed at once: a sandbox must not get that far
 *
 * Invariants
 * - A connection without a proved key reaches no proxy. A key opens the policy of its own blueprint only.
 * - A sandbox of an unknown blueprint reaches nothing, and is told why.
 * - Proxies of idle sandboxes are removed; the numbers of sandboxes and of connections have limits.
 */

import { constants } from "node:crypto";
import { createServer as createHttpServer, type Server as HttpServer } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { PSK_TLS } from "@sandlot/contract";
import type { NetworkPolicy } from "../../../backend/network/policy.ts";
import type { Timer, World } from "../../../world/world.ts";
import { deriveAuthority } from "../certificates/authority.ts";
import { EGRESS_LIMITS, type EgressLimits } from "../limits.ts";
import { EgressProxy, type EgressStats } from "../proxy/egress-proxy.ts";
import { plain, sendRawReply } from "../proxy/replies.ts";
import type { Resolver } from "../rules/resolver.ts";
import { needsAuthority } from "../sandbox-side/sandbox-network.ts";
import { RefusalRing } from "./refusal-ring.ts";

/** The part of `FleetKeys` that a proxy needs. */
export interface EgressKeys {
  /** What an identity names, and the key that its peer has to prove. */
  named(identity: string): NamedPeer | null;
  /** The seed of the authority that the named sandbox trusts. */
  authoritySeed(identity: string): Buffer | null;
}

export interface NamedPeer {
  readonly purpose: string;
  readonly sandboxId: string;
  readonly blueprintHash: string;
  readonly psk: { readonly key: string };
}

export interface ClusterEgressOptions {
  readonly world: World;
  readonly keys: EgressKeys;
  /** The policy of a blueprint; `null` for an unknown one. */
  readonly policyOf: (blueprintHash: string) => NetworkPolicy | null;
  readonly limits?: Partial<ClusterEgressLimits> | undefined;
  readonly resolver?: Resolver | undefined;
  readonly upstreamCa?: readonly string[] | undefined;
  /** A failure that ended one connection, without what was sent. */
  readonly onFault?: (problem: string) => void;
}

export interface ClusterEgressLimits extends EgressLimits {
  /** Sandboxes with a proxy here. Each costs some tens of kilobytes while it is idle. */
  readonly sandboxesMax: number;
  /** Connections of all sandboxes together: two descriptors each. */
  readonly allConnectionsMax: number;
  /** A sandbox without a connection for this long gives up its proxy here. */
  readonly sandboxIdleMs: number;
  /** Refusals kept for gateways. */
  readonly ringMax: number;
}

export const CLUSTER_EGRESS_LIMITS: ClusterEgressLimits = {
  ...EGRESS_LIMITS,
  sandboxesMax: 4_096,
  allConnectionsMax: 16_384,
  sandboxIdleMs: 120_000,
  ringMax: 4_096,
};

interface Held {
  readonly proxy: EgressProxy;
  idleSinceMs: number | null;
}

const NO_SESSIONS = constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION;
const UNKNOWN_BLUEPRINT =
  "Sandlot: this proxy does not know the blueprint of this sandbox, so nothing can be reached. " +
  "The fleet's configuration has changed since the sandbox was made; a new sandbox has the present one.";
const BUSY = "Sandlot: this proxy serves as many sandboxes as it can. Try again later.";

export class ClusterEgress {
  readonly #options: ClusterEgressOptions;
  readonly #limits: ClusterEgressLimits;
  readonly #peers = new WeakMap<Socket, { readonly peer: NamedPeer; readonly identity: string }>();
  readonly #held = new Map<string, Held>();
  readonly #sockets = new Set<Socket>();
  readonly #ring: RefusalRing;
  readonly #tls: Server;
  readonly #canary: Server;
  readonly #reports: HttpServer;
  #sweeping: Timer | null = null;
  #isClosed = false;

  constructor(options: ClusterEgressOptions) {
    this.#options = options;
    this.#limits = { ...CLUSTER_EGRESS_LIMITS, ...options.limits };
    this.#ring = new RefusalRing(options.world.randomHex(8), this.#limits.ringMax);
    this.#reports = this.#makeReports();
    this.#tls = this.#makeTls();
    this.#canary = createServer((socket) => socket.on("error", () => {}).destroy());
  }

  /** Listens on both ports; 0 takes free ones. */
  async listen(where: { readonly host: string; readonly port: number; readonly canaryPort: number }) {
    const port = await listenAt(this.#tls, where.host, where.port);
    const canaryPort = await listenAt(this.#canary, where.host, where.canaryPort);
    this.#sweepLater();
    return { port, canaryPort };
  }

  /** What is open, for operators: the sum over all sandboxes. */
  stats(): EgressStats & { readonly sandboxes: number } {
    const sums = { openConnections: 0, requests: 0, tunnels: 0, refused: 0, dropped: 0, bytesUp: 0, bytesDown: 0 };
    for (const { proxy } of this.#held.values())
      for (const [name, count] of Object.entries(proxy.stats())) sums[name as keyof EgressStats] += count;
    return { ...sums, sandboxes: this.#held.size };
  }

  /** Accepts nothing more, and waits for open connections, for at most `graceMs`. */
  async drain(graceMs: number): Promise<void> {
    this.#isClosed = true;
    for (const server of [this.#tls, this.#canary]) server.close();
    const until = this.#options.world.monotonicMs() + graceMs;
    while (this.#sockets.size > 0 && this.#options.world.monotonicMs() < until)
      await new Promise<void>((resolve) => void this.#options.world.timer(DRAIN_LOOK_MS, resolve));
    await this.close();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#sweeping?.cancel();
    for (const server of [this.#tls, this.#canary]) server.close();
    for (const socket of this.#sockets) socket.destroy();
    this.#reports.close();
    await Promise.all([...this.#held.values()].map(({ proxy }) => proxy.close()));
    this.#held.clear();
  }

  #makeTls(): Server {
    const server = createTlsServer({
      ...PSK_TLS,
      secureOptions: NO_SESSIONS,
      pskCallback: (socket, identity) => this.#keyOf(socket, identity),
      handshakeTimeout: this.#limits.headTimeoutMs,
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
    });
    server.maxConnections = this.#limits.allConnectionsMax;
    server.on("secureConnection", (socket: TLSSocket) => this.#accept(socket));
    // A peer without a key: Node has destroyed the connection.
    server.on("tlsClientError", () => {});
    return server;
  }

  #keyOf(socket: TLSSocket, identity: string): Buffer | null {
    const peer = this.#options.keys.named(identity);
    if (peer === null || (peer.purpose !== "egress" && peer.purpose !== "refusals")) return null;
    this.#peers.set(socket, { peer, identity });
    return Buffer.from(peer.psk.key, "hex");
  }

  #accept(socket: TLSSocket): void {
    socket.on("error", () => socket.destroy());
    const known = this.#peers.get(socket);
    if (known === undefined || this.#isClosed) return void socket.destroy();
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    try {
      if (known.peer.purpose === "refusals") this.#reports.emit("connection", socket);
      else this.#serve(socket, known.peer, known.identity);
    } catch (error) {
      this.#options.onFault?.(error instanceof Error ? error.name : "unknown");
      socket.destroy();
    }
  }

  #serve(socket: TLSSocket, peer: NamedPeer, identity: string): void {
    // The same sandbox under two fleet keys has two authorities.
    const held = this.#held.get(identity) ?? this.#open(peer, identity);
    if (typeof held === "string") {
      sendRawReply(socket, plain(503, held));
      socket.resume();
      return;
    }
    held.idleSinceMs = null;
    held.proxy.accept(socket);
  }

  #open(peer: NamedPeer, identity: string): Held | string {
    const { world, keys, policyOf, resolver, upstreamCa } = this.#options;
    const policy = policyOf(peer.blueprintHash);
    if (policy === null || policy.mode === "none") return UNKNOWN_BLUEPRINT;
    if (this.#held.size >= this.#limits.sandboxesMax && !this.#sweep(0)) return BUSY;
    const seed = needsAuthority(policy) ? keys.authoritySeed(identity) : null;
    const hosts = policy.secrets.flatMap(({ via, host }) => (via === "https" ? [host] : []));
    const proxy = new EgressProxy({
      ...{ policy, world, resolver, upstreamCa, limits: this.#limits },
      ...(seed !== null && { authority: deriveAuthority(seed, hosts, world.wallMs()) }),
      onRefused: (refusal, untold) => this.#ring.add(world.wallMs(), peer.sandboxId, refusal, untold),
    });
    const held: Held = { proxy, idleSinceMs: null };
    this.#held.set(identity, held);
    return held;
  }

  #sweepLater(): void {
    const { world } = this.#options;
    this.#sweeping = world.timer(
      this.#limits.sandboxIdleMs / 2,
      () => {
        this.#sweep(this.#limits.sandboxIdleMs);
        if (!this.#isClosed) this.#sweepLater();
      },
      { background: true },
    );
  }

  /** Removes proxies that were idle this long. Returns whether there is room for another. */
  #sweep(idleMs: number): boolean {
    const nowMs = this.#options.world.monotonicMs();
    for (const [identity, held] of this.#held) {
      if (held.proxy.stats().openConnections > 0) held.idleSinceMs = null;
      else held.idleSinceMs ??= nowMs;
      if (held.idleSinceMs === null || nowMs - held.idleSinceMs < idleMs) continue;
      this.#held.delete(identity);
      void held.proxy.close();
    }
    return this.#held.size < this.#limits.sandboxesMax;
  }

  #makeReports(): HttpServer {
    // Never listens: it receives connections after the TLS handshake.
    return createHttpServer((request, response) => {
      const [path, search = ""] = (request.url ?? "").split("?", 2);
      const query = new URLSearchParams(search);
      const from = Number(query.get("from") ?? 0);
      const isKnown = request.method === "GET" && path === "/refusals" && Number.isSafeInteger(from) && from >= 0;
      const body = JSON.stringify(isKnown ? this.#ring.page(query.get("epoch"), from) : { error: "unknown request" });
      request.resume();
      response.writeHead(isKnown ? 200 : 400, {
        "content-type": "application/json",
        "content-length": Buffer.byteLength(body),
      });
      response.end(body);
    });
  }
}

const DRAIN_LOOK_MS = 50;

async function listenAt(server: Server, host: string, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port }, () => {
      server.off("error", reject);
      resolve();
    });
  });
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : port;
}
