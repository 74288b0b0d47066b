/**
 * One connection to a terminal, as a WebSocket: binary frames are bytes, text frames are control (see the wire in
 * `@sandlot/contract`).
 *
 * Invariant: at most a window of output is sent beyond what the reader has acknowledged.
 */

import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { TERMINAL_WINDOW_BYTES, type TerminalNotice } from "@sandlot/contract";
import type { WebSocket, WebSocketServer } from "ws";
import type { Terminal, TerminalReader } from "../terminals/terminal.ts";
import { checkSize } from "./terminal-routes.ts";

const PART_BYTES = 32 * 1024;
const MESSAGE_MAX_BYTES = 1024 * 1024;
/** The protocol's code for an invalid request. */
const POLICY_VIOLATION = 1008;

let sockets: WebSocketServer | undefined;

/** Turns a request into a connection to this terminal. The WebSocket library is loaded at the first use. */
export async function attachSocket(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  terminal: Terminal,
  fromOffset: number | undefined,
): Promise<void> {
  const { WebSocketServer } = await import("ws");
  sockets ??= new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: MESSAGE_MAX_BYTES,
  });
  sockets.handleUpgrade(request, socket, head, (connection) => {
    new Attached(connection, terminal, fromOffset).begin();
  });
}

class Attached implements TerminalReader {
  readonly #connection: WebSocket;
  readonly #terminal: Terminal;
  readonly #fromOffset: number;
  #sent: number;
  #acknowledged: number;
  #detach: () => void = () => {};
  #isOver = false;

  constructor(connection: WebSocket, terminal: Terminal, fromOffset: number | undefined) {
    this.#connection = connection;
    this.#terminal = terminal;
    const { startOffset, endOffset } = terminal.output;
    this.#fromOffset = fromOffset ?? 0;
    this.#sent = Math.min(Math.max(this.#fromOffset, startOffset), endOffset);
    this.#acknowledged = this.#sent;
  }

  get readOffset(): number {
    return this.#acknowledged;
  }

  begin(): void {
    const droppedBytes = Math.max(0, this.#sent - this.#fromOffset);
    this.#tell({ type: "position", offset: this.#sent, droppedBytes });
    this.#connection.on("message", (data, isBinary) => this.#received(data as Buffer, isBinary));
    this.#connection.on("error", () => {});
    this.#connection.on("close", () => this.#detach());
    this.#detach = this.#terminal.attach(this);
    this.notice();
  }

  notice(): void {
    const { output } = this.#terminal;
    while (this.#sent < output.endOffset && this.#sent - this.#acknowledged < TERMINAL_WINDOW_BYTES) {
      const { offset, bytes } = output.read(this.#sent, PART_BYTES);
      if (offset > this.#sent) this.#tell({ type: "position", offset, droppedBytes: offset - this.#sent });
      this.#connection.send(bytes);
      this.#sent = offset + bytes.length;
    }
    const { end } = this.#terminal;
    if (end === null || this.#sent < output.endOffset || this.#isOver) return;
    this.#isOver = true;
    this.#tell({ type: "exit", ...end });
    this.#connection.close();
  }

  #received(data: Buffer, isBinary: boolean): void {
    if (isBinary) {
      const goOn = this.#terminal.write(data, () => this.#connection.resume());
      if (!goOn) this.#connection.pause();
      return;
    }
    try {
      this.#asked(JSON.parse(data.toString("utf8")) as Readonly<Record<string, unknown>>);
    } catch (error) {
      this.#connection.close(POLICY_VIOLATION, (error as Error).message.slice(0, 100));
    }
  }

  #asked(request: Readonly<Record<string, unknown>>): void {
    if (request.type === "resize") {
      const { columns, rows } = checkSize(request);
      this.#terminal.resize(columns, rows);
    } else if (request.type === "ack") {
      const offset = Number(request.offset);
      // An acknowledgement cannot exceed what was sent.
      if (offset > this.#acknowledged && offset <= this.#sent) this.#acknowledged = offset;
      this.#terminal.balance();
      this.notice();
    } else throw new Error(`there is no ${String(request.type)}`);
  }

  #tell(notice: TerminalNotice): void {
    this.#connection.send(JSON.stringify(notice));
  }
}
