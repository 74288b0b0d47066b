/**
 * A TCP proxy between clients and a server, whose connections can be harmed.
 *
 *   open       bytes pass
 *   delayed    every chunk takes 50 ms longer, in each direction
 *   cut        every connection is reset, and new ones are reset as soon as they are accepted
 *   half-open  bytes are swallowed, in both directions or only the answers, and connections stay. Such a connection
 *              never carries bytes again, as after a firewall has forgotten it: only a deadline can notice
 *   stalled    bytes wait and arrive together when the link heals: later than every deadline of their sender
 *
 * `harmReplicas` swallows the bytes of replicas of Redis only, which `PSYNC` gives away.
 * `resetNextAnswer` passes the first half of the next answer and then resets its connection.
 *
 * Invariant: bytes of one direction of a connection are never reordered.
 */

import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

export interface Upstream {
  readonly host: string;
  readonly port: number;
}

export type LinkMode =
  | { readonly kind: "open" | "cut" }
  | { readonly kind: "delayed"; readonly ms: number }
  | { readonly kind: "half-open" | "stalled"; readonly direction: "both" | "answers" };

export class Link {
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  #upstream: Upstream;
  #mode: LinkMode = { kind: "open" };
  /** In both directions. */
  passedBytes = 0;
  /** Called once, when an answer was cut in the middle. */
  #onReset: (() => void) | null = null;

  private constructor(upstream: Upstream) {
    this.#upstream = upstream;
    this.#server = createServer({ allowHalfOpen: false }, (client) => this.#accept(client));
  }

  /** On a free port of `host`, or on the given one. */
  static async open(upstream: Upstream, host = "127.0.0.1", port = 0): Promise<Link> {
    const link = new Link(upstream);
    link.#server.listen(port, host);
    await once(link.#server, "listening");
    return link;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the link is closed");
    return address.port;
  }

  get mode(): LinkMode {
    return this.#mode;
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  set(mode: LinkMode): void {
    this.#mode = mode;
    for (const connection of [...this.#connections]) connection.changed(mode);
  }

  heal(): void {
    this.#onReset = null;
    this.set({ kind: "open" });
  }

  /** The replicas of a Redis server get nothing more over their present connections. */
  harmReplicas(): void {
    for (const connection of this.#connections)
      if (connection.isReplica) connection.changed({ kind: "half-open", direction: "both" });
  }

  /** Where new connections go, as when an address moves to another server. The present ones are reset. */
  moveTo(upstream: Upstream): void {
    this.#upstream = upstream;
    for (const connection of [...this.#connections]) connection.reset();
  }

  /** Resolves when it has happened, with false when nothing was answered in time. */
  resetNextAnswer(withinMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (happened: boolean) => {
        clearTimeout(timer);
        this.#onReset = null;
        resolve(happened);
      };
      const timer = setTimeout(() => end(false), withinMs);
      this.#onReset = () => end(true);
    });
  }

  async close(): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const connection of [...this.#connections]) connection.reset();
    await closed;
  }

  #accept(client: Socket): void {
    if (this.#mode.kind === "cut") {
      client.on("error", () => {});
      client.resetAndDestroy();
      return;
    }
    const connection = new Connection(client, connect(this.#upstream), {
      mode: this.#mode,
      takeReset: () => {
        const onReset = this.#onReset;
        onReset?.();
        return onReset !== null;
      },
      onPassed: (bytes) => {
        this.passedBytes += bytes;
      },
      onEnd: () => this.#connections.delete(connection),
    });
    this.#connections.add(connection);
  }
}

interface ConnectionParts {
  readonly mode: LinkMode;
  /** Whether this answer is the one to cut in the middle. */
  readonly takeReset: () => boolean;
  readonly onPassed: (bytes: number) => void;
  readonly onEnd: () => void;
}

class Connection {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #requests: Flow;
  readonly #answers: Flow;
  readonly #onEnd: () => void;
  isReplica = false;

  constructor(client: Socket, server: Socket, { mode, takeReset, onPassed, onEnd }: ConnectionParts) {
    this.#client = client;
    this.#server = server;
    this.#onEnd = onEnd;
    for (const socket of [client, server]) socket.setNoDelay(true).on("error", () => {});
    this.#requests = new Flow(client, server, onPassed);
    this.#answers = new Flow(server, client, onPassed);
    client.on("data", (chunk) => {
      if (chunk.includes("PSYNC")) this.isReplica = true;
      this.#requests.take(chunk);
    });
    server.on("data", (chunk) => {
      if (chunk.length > 1 && takeReset()) this.#cutInTheMiddle(chunk);
      else this.#answers.take(chunk);
    });
    client.on("close", () => this.#closed(this.#requests));
    server.on("close", () => this.#closed(this.#answers));
    this.changed(mode);
  }

  changed(mode: LinkMode): void {
    if (mode.kind === "cut") {
      this.reset();
      return;
    }
    this.#answers.changed(mode);
    if (!("direction" in mode) || mode.direction === "both") this.#requests.changed(mode);
  }

  reset(): void {
    for (const socket of [this.#client, this.#server]) {
      // A socket that is shutting down cannot be reset: Node would keep its handle open for ever.
      if (socket.writableEnded) socket.destroy();
      else socket.resetAndDestroy();
    }
  }

  #cutInTheMiddle(chunk: Buffer): void {
    this.#server.pause();
    this.#client.write(chunk.subarray(0, chunk.length >> 1), () => this.reset());
  }

  /** One end has gone. The other is told when the bytes before have passed; never on a link that forgot it. */
  #closed(flow: Flow): void {
    flow.end();
    if (this.#client.destroyed && this.#server.destroyed) this.#onEnd();
  }
}

/** The bytes in one direction. */
class Flow {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #onPassed: (bytes: number) => void;
  readonly #waiting: { readonly chunk: Buffer; readonly due: number }[] = [];
  #mode: LinkMode = { kind: "open" };
  /** Bytes were swallowed, so what follows makes no sense to the receiver. */
  #isForgotten = false;
  #isEnded = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(from: Socket, to: Socket, onPassed: (bytes: number) => void) {
    this.#from = from;
    this.#to = to;
    this.#onPassed = onPassed;
  }

  changed(mode: LinkMode): void {
    this.#mode = mode;
    if (mode.kind === "half-open") this.#isForgotten = true;
    if (mode.kind !== "stalled") this.#flush();
  }

  take(chunk: Buffer): void {
    if (this.#isForgotten) return;
    const delayMs = this.#mode.kind === "delayed" ? this.#mode.ms : 0;
    const last = this.#waiting.at(-1)?.due ?? 0;
    this.#waiting.push({ chunk, due: Math.max(last, performance.now() + delayMs) });
    if (this.#mode.kind !== "stalled") this.#flush();
  }

  end(): void {
    this.#isEnded = true;
    if (this.#mode.kind !== "stalled") this.#flush();
  }

  #flush(): void {
    if (this.#isForgotten) {
      this.#waiting.length = 0;
      return;
    }
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const waitMs = next.due - performance.now();
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.#flush(), waitMs);
        return;
      }
      this.#waiting.shift();
      this.#onPassed(next.chunk.length);
      if (!this.#to.destroyed && !this.#to.write(next.chunk)) this.#waitForRoom();
    }
    if (this.#isEnded) this.#to.end();
  }

  #waitForRoom(): void {
    this.#from.pause();
    this.#to.once("drain", () => this.#from.resume());
  }
}
