/**
 * Server-sent events over one response.
 *
 * Invariants
 * - The writer waits for its reader: what a slow client has not read is not produced, and slows no other client.
 * - A client that reads nothing for `stallMs` is cut off. It can resume later.
 * - After the head is sent, an error is an event (`error`), then the end.
 */

import type { ServerResponse } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { GatewaySettings } from "../../config/gateway-settings.ts";
import type { Timer, World } from "../../world/world.ts";
import { errorReply, toSandlotError } from "../errors.ts";

export interface SseOptions {
  readonly world: World;
  readonly settings: GatewaySettings;
  /** How long the client may read nothing. Default `bodyStallMs`. */
  readonly stallMs?: number;
}

export class SseStream {
  /** Fires when the client is gone. */
  readonly closed: AbortSignal;
  readonly #raw: ServerResponse;
  readonly #request: FastifyRequest;
  readonly #options: SseOptions;
  readonly #controller = new AbortController();
  #heartbeat: Timer | null = null;

  constructor(request: FastifyRequest, reply: FastifyReply, options: SseOptions) {
    this.#request = request;
    this.#options = options;
    this.#raw = reply.raw;
    this.closed = this.#controller.signal;
    reply.hijack();
    for (const [name, value] of Object.entries(reply.getHeaders()))
      if (value !== undefined) this.#raw.setHeader(name, value);
    this.#raw.writeHead(200, {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    this.#raw.once("close", () => this.#end(new Error("the reader of this stream has gone away")));
    // A closed response emits no second `close`.
    if (this.#raw.destroyed) this.#end(new Error("the reader of this stream has gone away"));
    this.#raw.flushHeaders();
    this.#beat();
  }

  send(event: string, data: unknown, id?: string): Promise<void> {
    return this.sendEncoded(event, JSON.stringify(data), id);
  }

  /** The same for encoded JSON. */
  async sendEncoded(event: string, json: string, id?: string): Promise<void> {
    this.closed.throwIfAborted();
    const head = id === undefined ? "" : `id: ${id}\n`;
    await this.#write(`${head}event: ${event}\ndata: ${json}\n\n`);
  }

  /** Runs `work`, which fills the stream, then ends it. An error becomes the stream's last event. */
  async fill(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!this.closed.aborted) {
        const known = toSandlotError(error, this.#request);
        this.#request.errorCode = known.code;
        await this.send("error", errorReply(known, this.#request.id)).catch(() => undefined);
      }
    } finally {
      this.#heartbeat?.cancel();
      this.#raw.end();
    }
  }

  async #write(text: string): Promise<void> {
    if (this.#raw.write(text)) return;
    const { world, settings } = this.#options;
    await new Promise<void>((resolve, reject) => {
      const { stallMs = settings.bodyStallMs } = this.#options;
      const timer = world.timer(stallMs, () => this.#raw.destroy());
      const done = (settle: () => void) => () => {
        timer.cancel();
        this.#raw.off("drain", onDrain);
        this.closed.removeEventListener("abort", onClosed);
        settle();
      };
      const onDrain = done(resolve);
      const onClosed = done(() => reject(this.closed.reason));
      this.#raw.once("drain", onDrain);
      this.closed.addEventListener("abort", onClosed, { once: true });
    });
  }

  #beat(): void {
    const { world, settings } = this.#options;
    this.#heartbeat = world.timer(
      settings.heartbeatMs,
      () => {
        if (this.closed.aborted || this.#raw.writableEnded) return;
        if (!this.#raw.writableNeedDrain) this.#raw.write(": alive\n\n");
        this.#beat();
      },
      { background: true },
    );
  }

  #end(reason: Error): void {
    this.#heartbeat?.cancel();
    if (!this.#controller.signal.aborted) this.#controller.abort(reason);
  }
}
