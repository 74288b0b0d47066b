/**
 * Connections to a daemon: a unix socket, a port, or a port whose daemon proves a pre-shared key (TLS).
 *
 * Invariants
 * - With keys, no byte of a request leaves before the daemon has proved one of them. A neighbour at a reused address, an
 *   ordinary TLS server and a plain one fail the handshake.
 * - Connecting with keys has a deadline of its own: a network may drop packets without an answer.
 */

import { constants } from "node:crypto";
import { Agent, type ClientRequestArgs } from "node:http";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { type PresharedKey, PSK_TLS } from "@sandlot/contract";
import type { World } from "../world/world.ts";

export type DaemonAddress =
  | { readonly path: string }
  | { readonly host: string; readonly port: number; readonly keys?: DaemonKeys }
  /** Through something else than the network: `open` gives a new stream to the daemon's port. */
  | { readonly name: string; readonly open: () => Duplex; readonly keys: DaemonKeys };

/** The keys that the daemon may have; it names one of them by its hint. More than one during a rotation. */
export type DaemonKeys = readonly [PresharedKey, ...PresharedKey[]];

/** A daemon in the same cluster answers within milliseconds, unless its machine is overloaded. */
const HANDSHAKE_MS = 10_000;
const NO_SESSIONS = constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION;
/** The network refused or lost the connection; it says nothing about keys. */
const NETWORK_ERRORS: ReadonlySet<unknown> = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ETIMEDOUT",
  "EADDRNOTAVAIL",
  "EMFILE",
  "ENFILE",
]);

export function dial(address: DaemonAddress, timer: World["timer"]): Socket {
  if ("path" in address) return connect(address.path);
  if ("open" in address) return dialWithKeys({ socket: address.open() }, address.keys, address.name, timer);
  const { host, port, keys } = address;
  return keys === undefined ? connect(port, host) : dialWithKeys({ host, port }, keys, `${host}:${port}`, timer);
}

function dialWithKeys(
  where: { readonly socket: Duplex } | { readonly host: string; readonly port: number },
  keys: DaemonKeys,
  name: string,
  timer: World["timer"],
): TLSSocket {
  const socket = connectTls({
    ...PSK_TLS,
    ...where,
    secureOptions: NO_SESSIONS,
    pskCallback: (hint) => {
      // A server of many clients has no hint. The first key is the present one.
      const chosen = hint === null || hint === "" ? keys[0] : keys.find(({ identity }) => identity === hint);
      return chosen === undefined ? null : { psk: Buffer.from(chosen.key, "hex"), identity: chosen.identity };
    },
    // There are no certificates; the cipher proves the key.
    checkServerIdentity: () => undefined,
  });
  const late = timer(HANDSHAKE_MS, () => socket.destroy(new Error(`no handshake within ${HANDSHAKE_MS} ms`)));
  // The first listener: every later one sees the message.
  const explain = (error: NodeJS.ErrnoException): void => {
    if (NETWORK_ERRORS.has(error.code)) return;
    error.message = `the peer at ${name} did not prove this sandbox's key (${error.code ?? error.message})`;
  };
  socket.once("error", explain);
  socket.once("close", () => late.cancel());
  socket.once("secureConnect", () => {
    late.cancel();
    socket.off("error", explain);
  });
  return socket;
}

/** The agent of requests that node:http sends. All of them go to the address of their options. */
export class DaemonAgent extends Agent {
  readonly #timer: World["timer"];

  constructor(idleMax: number, timer: World["timer"]) {
    super({ keepAlive: idleMax > 0, maxFreeSockets: idleMax, scheduling: "lifo" });
    this.#timer = timer;
  }

  override createConnection(options: ClientRequestArgs & { readonly daemon?: DaemonAddress }): Duplex {
    if (options.daemon === undefined) throw new Error("a request to a daemon without its address");
    const socket = dial(options.daemon, this.#timer);
    // A request that ends takes its listeners with it; the daemon may reset the connection after that.
    socket.on("error", () => {});
    return socket;
  }
}
