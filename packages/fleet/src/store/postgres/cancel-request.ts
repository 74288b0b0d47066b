/**
 * Asks the server to stop what one of its processes does for us, as `psql` does on Control-C: a connection of its own
 * with one message, which needs no password and takes none of the server's places.
 *
 * - A statement that has not committed ends without effect.
 * - A commit that waits for a replica stops waiting. It then stands on this server, visible and unconfirmed. The server
 *   itself never stops waiting: neither `statement_timeout` nor a closed connection ends that wait.
 * - The key belongs to one process of the server, so a request that arrives too late stops nothing else. The caller uses
 *   the connection for no other statement.
 */

import { connect, isIP, type Socket } from "node:net";
import { type TLSSocket, connect as tlsConnect } from "node:tls";
import { readTls } from "./secrets.ts";
import { isSocket, type PostgresSettings, placeOf } from "./settings.ts";

/** A process of the server, and the secret that its connection was told. */
export interface BackendKey {
  readonly processId: number;
  readonly secretKey: number;
}

const SSL_REQUEST = 80_877_103;
const CANCEL_REQUEST = 80_877_102;

/**
 * Resolves when the server has taken the request, or when it cannot be delivered: the call that gave up has ended
 * already, and another gateway stops what is left (`endOrphans`). Ends when `signal` aborts.
 */
export async function sendCancelRequest(
  settings: Pick<PostgresSettings, "host" | "port" | "tls">,
  { processId, secretKey }: BackendKey,
  signal: AbortSignal,
): Promise<void> {
  const { host, port } = settings;
  const socket = isSocket(host) ? connect({ path: placeOf(settings) }) : connect({ host, port });
  const abort = () => socket.destroy();
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  try {
    await connected(socket);
    const line = settings.tls === null ? socket : await encrypted(socket, settings);
    // The server answers by closing the connection.
    const closed = new Promise<void>((resolve) => line.once("close", () => resolve()));
    line.on("error", () => line.destroy());
    line.resume();
    line.write(message(CANCEL_REQUEST, processId, secretKey));
    await closed;
  } catch {
    // Not delivered: see above.
  } finally {
    signal.removeEventListener("abort", abort);
    socket.destroy();
  }
}

function message(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 + 4 * values.length);
  bytes.writeInt32BE(bytes.length);
  for (const [n, value] of values.entries()) bytes.writeInt32BE(value, 4 + 4 * n);
  return bytes;
}

function connected(socket: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once("connect", resolve);
    socket.once("error", reject);
    socket.once("close", () => reject(new Error("the connection was closed")));
  });
}

/** The key is a secret: whoever has it can stop our statements. */
async function encrypted(socket: Socket, { host, tls }: Pick<PostgresSettings, "host" | "tls">): Promise<TLSSocket> {
  socket.write(message(SSL_REQUEST));
  const answer = await new Promise<Buffer>((resolve, reject) => {
    socket.once("data", resolve);
    socket.once("close", () => reject(new Error("the connection was closed")));
  });
  if (answer.toString("latin1") !== "S") throw new Error("the server offers no TLS");
  // An address has no server name, and its certificate is checked against `host`.
  const line = tlsConnect({ socket, host, ...readTls(tls), ...(isIP(host) === 0 && { servername: host }) });
  await new Promise<void>((resolve, reject) => {
    line.once("secureConnect", () => resolve());
    line.once("error", reject);
    line.once("close", () => reject(new Error("the connection was closed")));
  });
  return line;
}
