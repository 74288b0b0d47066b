/** A proxy between a client and a server, whose connections a test can cut, refuse and freeze. */

import { once } from "node:events";
import { createConnection, createServer, type Server, type Socket } from "node:net";

export class TcpProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Both ends of the connections of replicas. */
  readonly #replicating = new Set<Socket>();
  readonly #target: number;
  /** Connections so far. */
  accepted = 0;
  #isRefusing = false;
  #isFrozen = false;

  static async to(port: number): Promise<TcpProxy> {
    const proxy = new TcpProxy(port);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((client) => {
      this.accepted += 1;
      this.#accept(client);
    });
  }

  get endpoint(): { readonly host: string; readonly port: number } {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the proxy does not listen");
    return { host: "127.0.0.1", port: address.port };
  }

  /** Ends every connection. New ones are accepted. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Ends every connection, and each new one at once. */
  refuse(): void {
    this.#isRefusing = true;
    this.cut();
  }

  /** Connections stay open, and nothing passes through them. */
  freeze(): void {
    this.#isFrozen = true;
    for (const socket of this.#sockets) socket.pause();
  }

  /** The same for the connections of replicas only. */
  freezeReplicas(): void {
    for (const socket of this.#replicating) socket.pause();
  }

  restore(): void {
    this.#isRefusing = false;
    this.#isFrozen = false;
    for (const socket of this.#sockets) socket.resume();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #accept(client: Socket): void {
    if (this.#isRefusing) {
      client.on("error", () => undefined).destroy();
      return;
    }
    const server = createConnection({ host: "127.0.0.1", port: this.#target });
    const ends = [client, server] as const;
    for (const [socket, other] of [ends, [server, client] as const]) {
      this.#sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("data", (data) => {
        if (data.includes("PSYNC")) for (const end of ends) this.#replicating.add(end);
        other.write(data);
      });
      socket.on("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
      if (this.#isFrozen) socket.pause();
    }
  }
}
