/**
 * A tiny load balancer: each request goes to the next gateway that accepts a connection.
 *
 * - A request that no gateway has seen may go to the next one. A request that was sent is never sent again.
 * - Each request has a connection of its own to the gateway, so that none is sent into a connection that just closes.
 */

import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";

/** Finds hangs. */
const PROBE_MAX_MS = 60_000;

export class RoundRobin {
  readonly #server: Server;
  #targets: readonly string[] = [];
  #turn = 0;
  /** Requests that no gateway accepted, or whose gateway went away in the middle. */
  readonly failures: string[] = [];
  /** By gateway. */
  readonly served = new Map<string, number>();

  private constructor() {
    this.#server = createServer((incoming, response) => this.#pass(incoming, response));
    // A client of the load may reuse a connection whenever it likes.
    this.#server.keepAliveTimeout = 120_000;
  }

  static async open(): Promise<RoundRobin> {
    const balancer = new RoundRobin();
    balancer.#server.listen(0, "127.0.0.1");
    await once(balancer.#server, "listening");
    return balancer;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the balancer is closed");
    return `http://127.0.0.1:${address.port}`;
  }

  /** The gateways to use from now on, by their URLs. */
  use(targets: readonly string[]): void {
    this.#targets = targets;
  }

  /**
   * Sends nothing to a gateway any more, and resolves when it has accepted what was sent to it. The kernel accepts
   * connections before the gateway does, and would reset them. It hands them over in turn, so one that is answered shows
   * that none waits before it.
   */
  async takeOut(target: string): Promise<void> {
    this.#targets = this.#targets.filter((one) => one !== target);
    const headers = { connection: "close" };
    const response = await fetch(`${target}/healthz`, { headers, signal: AbortSignal.timeout(PROBE_MAX_MS) });
    await response.arrayBuffer();
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  #pass(incoming: IncomingMessage, response: ServerResponse): void {
    this.#turn += 1;
    const turn = this.#turn;
    const order = this.#targets.map((_, index) => this.#targets[(turn + index) % this.#targets.length] ?? "");
    this.#try(order, incoming, response);
  }

  #try([target, ...others]: readonly string[], incoming: IncomingMessage, response: ServerResponse): void {
    if (target === undefined) {
      this.#fail(`${incoming.method} ${incoming.url}: no gateway accepts it`, response);
      return;
    }
    const { hostname, port } = new URL(target);
    const { method, url: path } = incoming;
    const headers = { ...incoming.headers, host: `${hostname}:${port}`, connection: "close" };
    const outgoing = request({ hostname, port, method, path, headers, agent: false });
    let isConnected = false;
    outgoing.once("socket", (socket) =>
      socket.once("connect", () => {
        isConnected = true;
        this.served.set(target, (this.served.get(target) ?? 0) + 1);
        incoming.pipe(outgoing);
      }),
    );
    outgoing.once("response", (answer) => {
      const { connection: _, ...passed } = answer.headers;
      response.writeHead(answer.statusCode ?? 502, passed);
      answer.pipe(response);
      answer.once("aborted", () => this.#fail(`${method} ${path}: the gateway broke off its answer`, response));
    });
    outgoing.once("error", (error) => {
      if (!isConnected) this.#try(others, incoming, response);
      else if (!response.destroyed) this.#fail(`${method} ${path}: ${error.message}`, response);
    });
    response.once("close", () => outgoing.destroy());
  }

  #fail(what: string, response: ServerResponse): void {
    this.failures.push(what);
    if (response.headersSent) response.destroy();
    else response.writeHead(502, { "content-type": "text/plain" }).end(what);
  }
}
