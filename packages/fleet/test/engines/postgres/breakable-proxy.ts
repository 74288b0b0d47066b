/** A TCP proxy in front of a test's server, to cut, hold up and break connections. */

import { connect, createServer, type Server, type Socket } from "node:net";

export class BreakableProxy {
  readonly port: number;
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket | null]>();
  /** `null`: every answer passes. Otherwise connections break after this many bytes of answers. */
  breakAfterBytes: number | null = null;
  #isBlackHole = false;
  #socketPath: string;

  static async start(socketPath: string): Promise<BreakableProxy> {
    let proxy: BreakableProxy | null = null;
    const server = createServer((client) => proxy?.accept(client));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    proxy = new BreakableProxy(server, socketPath, address !== null && typeof address === "object" ? address.port : 0);
    return proxy;
  }

  private constructor(server: Server, socketPath: string, port: number) {
    this.#server = server;
    this.#socketPath = socketPath;
    this.port = port;
  }

  accept(client: Socket): void {
    client.on("error", () => client.destroy());
    if (this.#isBlackHole) {
      this.#pairs.add([client, null]);
      return;
    }
    const upstream = connect(this.#socketPath);
    const pair = [client, upstream] as const;
    this.#pairs.add(pair);
    upstream.on("error", () => client.destroy());
    client.pipe(upstream);
    upstream.on("data", (chunk: Buffer) => {
      if (this.breakAfterBytes === null) {
        client.write(chunk);
        return;
      }
      client.write(chunk.subarray(0, this.breakAfterBytes), () => client.resetAndDestroy());
      upstream.destroy();
    });
    const end = () => {
      client.destroy();
      upstream.destroy();
      this.#pairs.delete(pair);
    };
    client.once("close", end);
    upstream.once("close", end);
  }

  /** Leads new connections to another server, and ends the others. */
  redirect(socketPath: string): void {
    this.#socketPath = socketPath;
    this.cut();
  }

  /** Ends every connection at once. */
  cut(): void {
    for (const [client, upstream] of this.#pairs) {
      client.destroy();
      upstream?.destroy();
    }
    this.#pairs.clear();
  }

  /** Ends every connection; new ones are accepted and never answered, until the returned function was called. */
  interrupt(): () => void {
    this.#isBlackHole = true;
    this.cut();
    return () => {
      this.#isBlackHole = false;
      this.cut();
    };
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
