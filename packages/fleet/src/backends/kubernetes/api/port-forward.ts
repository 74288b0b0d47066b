/**
 * Connections to ports of pods through the API server, for a process outside the cluster.
 *
 *   local connection ──▶ a port of this machine's loopback ──▶ one WebSocket per connection ──▶ kubelet ──▶ the pod's port
 *
 * The protocol (`v4.channel.k8s.io`): the first byte of a message is its channel, 0 for data and 1 for errors. The first
 * message of each channel holds the port's number.
 *
 * Invariants
 * - A slow reader slows the sender on both sides: nothing is buffered without limit.
 * - The listener is on the loopback only. What it leads to is guarded by the pod's own key.
 */

import { createServer, type Server, type Socket } from "node:net";
import type { WebSocket } from "ws";
import type { ApiClient } from "./client.ts";

const PROTOCOL = "v4.channel.k8s.io";
const DATA = 0;
const ERROR = 1;
const LOOPBACK = "127.0.0.1";
/** Beyond this the local reader waits until the WebSocket has sent. */
const BUFFERED_MAX_BYTES = 1024 * 1024;
const OPEN_MS = 20_000;

export class PortForwards {
  readonly #api: ApiClient;
  readonly #listeners = new Map<string, Promise<{ readonly server: Server; readonly port: number }>>();

  constructor(api: ApiClient) {
    this.#api = api;
  }

  /** A port of the loopback that leads to this port of the pod. The same for every call. */
  async listen(pod: string, uid: string, port: number): Promise<{ readonly host: string; readonly port: number }> {
    const key = `${pod}/${uid}/${port}`;
    const listening = this.#listeners.get(key) ?? this.#open(pod, port);
    this.#listeners.set(key, listening);
    try {
      return { host: LOOPBACK, port: (await listening).port };
    } catch (error) {
      this.#listeners.delete(key);
      throw error;
    }
  }

  drop(pod: string): void {
    for (const [key, listening] of this.#listeners) {
      if (!key.startsWith(`${pod}/`)) continue;
      this.#listeners.delete(key);
      void listening.then(({ server }) => server.close()).catch(() => {});
    }
  }

  close(): void {
    for (const key of [...this.#listeners.keys()]) this.drop(key.split("/")[0] ?? "");
  }

  #open(pod: string, port: number): Promise<{ readonly server: Server; readonly port: number }> {
    return new Promise((resolve, reject) => {
      const server = createServer({ pauseOnConnect: true, allowHalfOpen: false }, (socket) => {
        this.#connect(pod, port, socket).catch(() => socket.destroy());
      });
      server.once("error", reject);
      server.listen(0, LOOPBACK, () => {
        // A forgotten forward must not keep a script alive.
        server.unref();
        const address = server.address();
        if (address === null || typeof address === "string") reject(new Error("the listener has no port"));
        else resolve({ server, port: address.port });
      });
    });
  }

  async #connect(pod: string, port: number, socket: Socket): Promise<void> {
    socket.on("error", () => {});
    const { WebSocket: Client } = await import("ws");
    const { transport } = this.#api;
    const base = new URL(transport.access.server);
    base.protocol = base.protocol === "http:" ? "ws:" : "wss:";
    const path = `${base.pathname.replace(/\/$/, "")}${this.#api.subresource(pod, "portforward")}?ports=${port}`;
    const options = { ...(await transport.upgradeOptions()), handshakeTimeout: OPEN_MS, perMessageDeflate: false };
    if (socket.destroyed) return;
    const client = new Client(new URL(path, base), [PROTOCOL], options);
    join(socket, client);
  }
}

function join(socket: Socket, client: WebSocket): void {
  const greeted = new Set<number>();
  const end = () => {
    socket.destroy();
    client.terminate();
  };
  client.binaryType = "nodebuffer";
  client.on("open", () => socket.resume());
  client.on("error", end);
  client.on("close", () => socket.end());
  client.on("message", (message) => {
    const bytes = message as Buffer;
    const channel = bytes[0] ?? -1;
    if (channel !== DATA && channel !== ERROR) return end();
    if (!greeted.has(channel)) return void greeted.add(channel);
    // Nothing listens on that port, or the connection to it broke.
    if (channel === ERROR) return end();
    if (!socket.write(bytes.subarray(1))) {
      client.pause();
      socket.once("drain", () => client.resume());
    }
  });
  socket.on("data", (chunk: Buffer) => {
    if (client.readyState !== client.OPEN) return;
    client.send(Buffer.concat([Buffer.from([DATA]), chunk]), () => {
      if (socket.isPaused() && client.bufferedAmount < BUFFERED_MAX_BYTES) socket.resume();
    });
    if (client.bufferedAmount >= BUFFERED_MAX_BYTES) socket.pause();
  });
  socket.on("close", () => client.close());
}
