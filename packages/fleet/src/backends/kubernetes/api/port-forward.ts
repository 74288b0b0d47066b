/**
 * Streams to ports of pods through the API server, for a process outside the cluster: one WebSocket each.
 *
 * The protocol (`v4.channel.k8s.io`): the first byte of a message is its channel, 0 for data and 1 for errors. The first
 * message of each channel holds the port's number.
 *
 * Invariant: a slow reader slows the sender on both sides; nothing is buffered without limit.
 */

import { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { ApiClient } from "./client.ts";

const PROTOCOL = "v4.channel.k8s.io";
const DATA = 0;
const ERROR = 1;
const OPEN_MS = 20_000;

export class PortForwards {
  readonly #api: ApiClient;

  constructor(api: ApiClient) {
    this.#api = api;
  }

  /** A new stream to this port of the pod. What is written before it is open waits. */
  open(pod: string, port: number): Duplex {
    return new ForwardedStream(() => this.#connect(pod, port));
  }

  async #connect(pod: string, port: number): Promise<WebSocket> {
    const { WebSocket: Client } = await import("ws");
    const { transport } = this.#api;
    const base = new URL(transport.access.server);
    base.protocol = base.protocol === "http:" ? "ws:" : "wss:";
    const path = `${base.pathname.replace(/\/$/, "")}${this.#api.subresource(pod, "portforward")}?ports=${port}`;
    const options = { ...(await transport.upgradeOptions()), handshakeTimeout: OPEN_MS, perMessageDeflate: false };
    return new Client(new URL(path, base), [PROTOCOL], options);
  }
}

class ForwardedStream extends Duplex {
  readonly #connect: () => Promise<WebSocket>;
  readonly #greeted = new Set<number>();
  #client: WebSocket | null = null;

  constructor(connect: () => Promise<WebSocket>) {
    super({ allowHalfOpen: false });
    this.#connect = connect;
  }

  /** Node waits with reads and writes until this has called back. */
  override _construct(opened: (error?: Error | null) => void): void {
    this.#connect().then(
      (client) => {
        this.#client = client;
        client.binaryType = "nodebuffer";
        let isOpen = false;
        client.on("open", () => {
          isOpen = true;
          opened();
        });
        client.on("error", (error) => (isOpen ? this.destroy(error) : opened(error)));
        client.on("close", () => this.push(null));
        client.on("message", (message) => this.#receive(client, message as Buffer));
      },
      (error: unknown) => opened(error instanceof Error ? error : new Error(String(error))),
    );
  }

  override _read(): void {
    this.#client?.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, sent: (error?: Error | null) => void): void {
    const message = Buffer.concat([Buffer.from([DATA]), chunk]);
    this.#client?.send(message, (error) => sent(error ?? null));
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#client?.close();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#client?.terminate();
    done(error);
  }

  #receive(client: WebSocket, message: Buffer): void {
    const channel = message[0] ?? -1;
    if (channel !== DATA && channel !== ERROR) return void this.destroy(new Error("an unknown channel"));
    if (!this.#greeted.has(channel)) return void this.#greeted.add(channel);
    if (channel === ERROR) {
      // Nothing listens on that port, or the connection to it broke.
      const error: NodeJS.ErrnoException = new Error(message.subarray(1).toString("utf8").slice(0, 500));
      error.code = "ECONNREFUSED";
      return void this.destroy(error);
    }
    if (!this.push(message.subarray(1))) client.pause();
  }
}
