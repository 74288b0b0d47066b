/**
 * One WebSocket on one terminal. Binary frames are bytes, both ways; text frames are control.
 *
 *   client → { type: "resize", columns, rows }   { type: "ack", bytes }
 *   server → { type: "ack", terminalId, offset, droppedBytes }   { type: "exit", exitCode, signal }
 *
 * The server's `ack` gives the offset of the next bytes: once at the start, and again after a gap. A client that
 * acknowledges gets at most `WINDOW_BYTES` ahead of what it has shown; for others only the connection's back-pressure
 * applies. Either way a reader that does not read stops only the programs in its own terminal. The terminal outlives
 * the connection; close code 1012 means: connect again with the same id and offset.
 */

import { type Terminal, terminalControlSchema } from "@sandlot/contract";
import type { WebSocket } from "ws";
import type { GatewaySettings } from "../../config/gateway-settings.ts";
import { tryJson } from "../../world/try-json.ts";
import type { Timer, World } from "../../world/world.ts";

const WINDOW_BYTES = 256 * 1024;
const BUFFERED_MAX_BYTES = 1024 * 1024;
const CLOSE = { normal: 1000, badFrame: 1008, failed: 1011, reconnect: 1012 } as const;

export interface TerminalConnectionParts {
  readonly socket: WebSocket;
  readonly terminal: Terminal;
  readonly world: World;
  readonly settings: GatewaySettings;
  readonly draining: AbortSignal;
  /** The client's position to resume from. */
  readonly offset: number;
}

/** Resolves when the connection has ended and the terminal was released. */
export async function serveTerminal(parts: TerminalConnectionParts): Promise<void> {
  const { socket, terminal, draining } = parts;
  const connection = new TerminalConnection(parts);
  const onDrain = () => socket.close(CLOSE.reconnect, "the gateway is being stopped");
  draining.addEventListener("abort", onDrain, { once: true });
  if (draining.aborted) onDrain();
  try {
    await connection.run();
  } finally {
    draining.removeEventListener("abort", onDrain);
    await terminal.detach();
  }
}

class TerminalConnection {
  readonly #parts: TerminalConnectionParts;
  readonly #closed: Promise<void>;
  /** Offset up to which the client has shown; `null` until its first acknowledgement. */
  #shown: number | null = null;
  #sent: number;
  #wake: () => void = () => undefined;
  #alive = true;
  #open = true;

  constructor(parts: TerminalConnectionParts) {
    const { socket, offset } = parts;
    this.#parts = parts;
    this.#sent = offset;
    this.#closed = new Promise((resolve) => {
      socket.once("close", () => {
        this.#open = false;
        this.#wake();
        resolve();
      });
    });
    socket.on("error", () => socket.terminate());
    socket.on("pong", () => {
      this.#alive = true;
    });
    socket.on("message", (data, isBinary) => this.#received(data as Buffer, isBinary));
  }

  async run(): Promise<void> {
    const { socket, terminal } = this.#parts;
    const beat = this.#beat();
    this.#notice({ type: "ack", terminalId: terminal.terminalId, offset: this.#sent, droppedBytes: 0 });
    const pumping = this.#pump().catch(() => socket.close(CLOSE.failed, "the terminal cannot be read"));
    try {
      const ended = await Promise.race([terminal.ended, this.#closed.then(() => undefined)]);
      if (ended === undefined) return;
      if (ended === null) return socket.close(CLOSE.reconnect, "the connection to the sandbox ended");
      await Promise.race([pumping, this.#closed]);
      this.#notice({ type: "exit", exitCode: ended.exitCode, signal: ended.signal });
      socket.close(CLOSE.normal);
      await this.#closed;
    } finally {
      beat.cancel();
    }
  }

  async #pump(): Promise<void> {
    const { socket, terminal } = this.#parts;
    for await (const { offset, droppedBytes, bytes } of terminal.output) {
      if (!this.#open) return;
      if (offset !== this.#sent) this.#notice({ type: "ack", terminalId: terminal.terminalId, offset, droppedBytes });
      this.#sent = offset + bytes.byteLength;
      socket.send(bytes, { binary: true }, () => this.#wake());
      await this.#room();
    }
  }

  /** Waits until the client has caught up. Ends a connection that takes nothing for too long. */
  async #room(): Promise<void> {
    const { socket, world, settings } = this.#parts;
    while (this.#open && this.#isFull()) {
      const timer = world.timer(
        settings.bodyStallMs,
        () => socket.bufferedAmount > BUFFERED_MAX_BYTES && socket.terminate(),
      );
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      timer.cancel();
    }
  }

  #isFull(): boolean {
    const unshown = this.#shown === null ? 0 : this.#sent - this.#shown;
    return this.#parts.socket.bufferedAmount > BUFFERED_MAX_BYTES || unshown > WINDOW_BYTES;
  }

  #received(data: Buffer, isBinary: boolean): void {
    const { socket, terminal } = this.#parts;
    if (isBinary) {
      terminal.write(data);
      return;
    }
    const control = terminalControlSchema.safeParse(tryJson(data.toString("utf8")));
    if (!control.success) socket.close(CLOSE.badFrame, "a text frame is { type: resize | ack }");
    else if (control.data.type === "resize") terminal.resize(control.data.columns, control.data.rows);
    else {
      this.#shown = Math.max(this.#shown ?? 0, control.data.bytes);
      this.#wake();
    }
  }

  #notice(notice: object): void {
    if (this.#open) this.#parts.socket.send(JSON.stringify(notice));
  }

  /** A peer that vanished does not answer a ping. */
  #beat(): Timer {
    const { world, settings, socket } = this.#parts;
    let timer: Timer;
    const next = () => {
      timer = world.timer(
        settings.heartbeatMs,
        () => {
          if (!this.#open) return;
          if (!this.#alive) return socket.terminate();
          this.#alive = false;
          socket.ping();
          next();
        },
        { background: true },
      );
    };
    next();
    return { cancel: () => timer.cancel() };
  }
}
