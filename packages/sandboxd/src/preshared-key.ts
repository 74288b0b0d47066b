/**
 * TLS with a pre-shared key, on the daemon's side: the listener of its API, and the client that reaches the egress proxy.
 *
 * Invariants
 * - Both ends prove the key before the first byte of a request. Without it a peer gets an alert and the end.
 * - The cipher allows no certificate, no session is resumed, and nothing is renegotiated.
 *
 * `node:tls` is loaded when it is needed: a daemon on a unix socket does without it.
 */

import type { Server } from "node:http";
import type { Server as NetServer, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { type PresharedKey, PSK_TLS } from "@sandlot/contract";

/** A peer that has not proved the key by then is not a fleet. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** Buffer of one upload or download, as of the plain server. */
const BUFFERED_BYTES = 1024 * 1024;
const PROBE_AFTER_MS = 30_000;
/** `SSL_OP_NO_TICKET` and `SSL_OP_NO_RENEGOTIATION` of OpenSSL. `node:crypto` has them, and takes a tenth of a start. */
const NO_SESSIONS = (1 << 14) | (1 << 30);

/** A listener whose connections go to the HTTP server once the key is proved. */
export async function keyedListener(http: Server, psk: PresharedKey): Promise<NetServer> {
  const { createServer } = await import("node:tls");
  const key = Buffer.from(psk.key, "hex");
  const server = createServer({
    ...PSK_TLS,
    secureOptions: NO_SESSIONS,
    pskIdentityHint: psk.identity,
    pskCallback: (_socket, identity) => (identity === psk.identity ? key : null),
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: PROBE_AFTER_MS,
    highWaterMark: BUFFERED_BYTES,
  });
  server.on("secureConnection", (socket: Socket) => http.emit("connection", socket));
  // A peer without the key: Node has destroyed the connection.
  server.on("tlsClientError", () => {});
  return server;
}

/** Opens connections to a peer with the same key. */
export async function keyedConnector(to: {
  readonly host: string;
  readonly port: number;
  readonly psk: PresharedKey;
}): Promise<() => TLSSocket> {
  const { connect } = await import("node:tls");
  const { host, port, psk } = to;
  const key = Buffer.from(psk.key, "hex");
  return () => {
    const socket = connect({
      ...PSK_TLS,
      ...{ host, port, secureOptions: NO_SESSIONS, allowHalfOpen: true },
      pskCallback: () => ({ psk: key, identity: psk.identity }),
      // There are no certificates; the cipher proves the key.
      checkServerIdentity: () => undefined,
    });
    socket.setNoDelay(true);
    return socket;
  };
}
