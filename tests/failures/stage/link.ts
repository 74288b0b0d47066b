/** A link to a server, through which its bytes go. It can stand still, without an error on either side, and lead elsewhere. */

import { connect, createServer, type Server, type Socket } from "node:net";

export class Link {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #target: number;
  #isCut = false;

  private constructor(server: Server, target: number) {
    this.#server = server;
    this.#target = target;
    server.on("connection", (socket) => this.#carry(socket));
  }

  static async to(port: number): Promise<Link> {
    const server = createServer();
    const link = new Link(server, port);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return link;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.pause();
  }

  mend(): void {
    this.#isCut = false;
    for (const socket of this.#sockets) socket.resume();
  }

  /** Breaks every connection; new ones lead to another port. */
  turn(port: number): void {
    this.#target = port;
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #carry(socket: Socket): void {
    const other = connect(this.#target, "127.0.0.1");
    for (const [from, to] of [
      [socket, other],
      [other, socket],
    ] as const) {
      this.#sockets.add(from);
      from.on("data", (bytes) => to.write(bytes));
      from.on("error", () => to.destroy());
      from.on("close", () => {
        this.#sockets.delete(from);
        to.destroy();
      });
      if (this.#isCut) from.pause();
    }
  }
}
