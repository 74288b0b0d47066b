/**
 * One connection to a terminal: a WebSocket to the daemon, as the contract's `Terminal`.
 *
 * Invariant: output counts as read when its reader asks for the next piece. Until then the daemon sends no more than a
 * window ahead, and holds the terminal's programs back beyond that.
 */

import type { Terminal, TerminalOutput } from "@sandlot/contract";
import type { RawData, WebSocket } from "ws";
import { ConnectionLost } from "./connections.ts";
import { encode } from "./encoding.ts";
import { errorOf, parseReply, terminalNoticeSchema } from "./replies.ts";
import type { Wire } from "./wire.ts";

/** A reader is told of progress this often at most; a fraction of the window, so that output never stops for it. */
const ACKNOWLEDGE_BYTES = 32 * 1024;

export async function connectTerminal(
  wire: Wire,
  terminalId: string,
  fromOffset: number | undefined,
): Promise<Terminal> {
  const socket = await openSocket(wire, { terminalId, fromOffset });
  return new DaemonTerminal(socket, terminalId);
}

async function openSocket(
  wire: Wire,
  query: { readonly terminalId: string; readonly fromOffset: number | undefined },
): Promise<WebSocket> {
  const { WebSocket } = await import("ws");
  const { url, headers, createConnection } = wire.upgrade("/sandlot/terminals/attach", query);
  const socket = new WebSocket(url, { headers, createConnection, perMessageDeflate: false });
  return new Promise((resolve, reject) => {
    socket.on("error", (error) => reject(new ConnectionLost(error.message, { cause: error })));
    // Held until somebody listens: the first frames may come with the answer.
    socket.once("open", () => {
      socket.pause();
      resolve(socket);
    });
    socket.once("unexpected-response", (request, response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("close", () => {
        request.destroy();
        reject(errorOf(response.statusCode ?? 0, Buffer.concat(parts)));
      });
    });
  });
}

class DaemonTerminal implements Terminal {
  readonly terminalId: string;
  readonly ended: Terminal["ended"];
  readonly output: AsyncIterable<TerminalOutput>;
  readonly #socket: WebSocket;
  readonly #waiting: TerminalOutput[] = [];
  #offset = 0;
  #dropped = 0;
  #acknowledged = 0;
  #isOver = false;
  #wake: () => void = () => {};

  constructor(socket: WebSocket, terminalId: string) {
    this.#socket = socket;
    this.terminalId = terminalId;
    this.output = { [Symbol.asyncIterator]: () => this.#read() };
    this.ended = this.#listen();
    socket.resume();
  }

  write(content: string | Uint8Array): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(encode(content), { binary: true });
  }

  resize(columns: number, rows: number): void {
    this.#tell({ type: "resize", columns, rows });
  }

  async detach(): Promise<void> {
    if (this.#isOver) return;
    const closed = new Promise<void>((resolve) => void this.#socket.once("close", () => resolve()));
    this.#socket.terminate();
    await closed;
  }

  #listen(): Terminal["ended"] {
    return new Promise((resolve) => {
      let end: Awaited<Terminal["ended"]> = null;
      this.#socket.on("message", (data, isBinary) => {
        if (isBinary) return this.#received(bytesOf(data));
        const notice = parseReply(terminalNoticeSchema, bytesOf(data));
        if (notice.type === "exit") end = { exitCode: notice.exitCode, signal: notice.signal };
        else {
          this.#dropped += notice.droppedBytes;
          this.#offset = notice.offset;
        }
      });
      this.#socket.on("close", () => {
        this.#isOver = true;
        this.#wake();
        resolve(end);
      });
    });
  }

  #received(bytes: Buffer): void {
    this.#waiting.push({ offset: this.#offset, droppedBytes: this.#dropped, bytes });
    this.#offset += bytes.length;
    this.#dropped = 0;
    this.#wake();
  }

  async *#read(): AsyncGenerator<TerminalOutput> {
    for (;;) {
      const piece = this.#waiting.shift();
      if (piece !== undefined) {
        yield piece;
        this.#acknowledge(piece.offset + piece.bytes.length);
      } else if (this.#isOver) return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }

  #acknowledge(offset: number): void {
    if (this.#waiting.length > 0 && offset - this.#acknowledged < ACKNOWLEDGE_BYTES) return;
    this.#acknowledged = offset;
    this.#tell({ type: "ack", offset });
  }

  #tell(request: object): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(JSON.stringify(request));
  }
}

function bytesOf(data: RawData): Buffer {
  if (Array.isArray(data)) return Buffer.concat(data);
  return data instanceof ArrayBuffer ? Buffer.from(data) : data;
}
