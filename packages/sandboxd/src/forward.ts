/**
 * The inner end of the egress, where only a process inside can listen on the sandbox's loopback. It forwards every
 * connection on a port to a unix socket, or over TLS to a proxy elsewhere. Each has its own connection there, so that a
 * replaced proxy is found at the same address.
 */

import { connect, createServer, type Socket } from "node:net";
import type { DaemonForward } from "@sandlot/contract";
import { timer } from "./clock.ts";
import { keyedConnector } from "./preshared-key.ts";

/** More than one sandbox's proxy takes. */
const CONNECTIONS_MAX = 512;
const NO_LISTENER =
  "Sandlot: the proxy of this sandbox does not run at the moment, so nothing outside can be reached. " +
  "It comes back when the sandbox is next used.\n";

/** Reaching the proxy and proving the key. A proxy elsewhere may be gone without an answer. */
const REACH_TIMEOUT_MS = 10_000;

/** A connection to the proxy, and the event that says that it can be used. */
interface Way {
  readonly open: () => Socket;
  readonly usable: "connect" | "secureConnect";
}

/** Resolves when it listens; rejects when it cannot. */
export async function forward(settings: DaemonForward): Promise<void> {
  const way = await wayOf(settings);
  const { port } = settings;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => carry(client, way));
  server.maxConnections = CONNECTIONS_MAX;
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      server.off("error", reject);
      server.on("error", () => {});
      resolve();
    });
  });
}

async function wayOf(settings: DaemonForward): Promise<Way> {
  if ("socketPath" in settings)
    return { open: () => connect({ path: settings.socketPath, allowHalfOpen: true }), usable: "connect" };
  return { open: await keyedConnector(settings.to), usable: "secureConnect" };
}

function carry(client: Socket, { open, usable }: Way): void {
  const proxy = open();
  const late = timer(REACH_TIMEOUT_MS, () => proxy.destroy(new Error("no answer")));
  client.on("error", () => proxy.destroy());
  proxy.once("close", () => late.cancel());
  const explain = (): void => {
    const head = "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/plain\r\nconnection: close\r\n";
    client.end(`${head}content-length: ${Buffer.byteLength(NO_LISTENER)}\r\n\r\n${NO_LISTENER}`);
    client.resume();
  };
  proxy.once("error", explain);
  proxy.once(usable, () => {
    late.cancel();
    proxy.off("error", explain);
    proxy.on("error", () => client.destroy());
    client.pipe(proxy).pipe(client);
    // `pipe` passes on a regular end, after all earlier bytes.
    client.once("close", () => client.readableEnded || proxy.destroy());
    proxy.once("close", () => proxy.readableEnded || client.destroy());
  });
}
