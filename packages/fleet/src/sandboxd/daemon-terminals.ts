/**
 * The terminals of a sandbox, through its daemon. A connection to one of them is a WebSocket, as the contract's `Terminal`.
 *
 * Invariants
 * - Output counts as read when its reader asks for the next piece. Until then the daemon sends no more than a window
 *   ahead, and holds the terminal's programs back beyond that. The connection of a daemon that sends more is ended.
 * - Bad input from a daemon never throws in a listener: it ends this connection, and its reader gets the error.
 * - Received and unsent data both have a limit.
 */

import type { ClientRequest } from "node:http";
import {
  daemonTerminalNoticeSchema,
  foundSchema,
  type SandboxTerminals,
  SandlotError,
  TERMINAL_WINDOW_BYTES,
  type Terminal,
  type TerminalInfo,
  type TerminalNotice,
  type TerminalOptions,
  type TerminalOutput,
} from "@sandlot/contract";
import type { RawData, WebSocket } from "ws";
import { z } from "zod";
import { STREAM_LIMITS } from "../untrusted/limits.ts";
import { ConnectionLost } from "./connection-pool.ts";
import type { Calls } from "./held-daemon.ts";
import { badResponse, errorOf, parseShort, terminalSchema, terminalsSchema } from "./replies.ts";
import { encode, type Wire } from "./wire.ts";

/** Progress is acknowledged this often at most; a fraction of the window, so that output never stops for it. */
const ACKNOWLEDGE_BYTES = 32 * 1024;
/** The most that a daemon sends beyond the window: its last message may begin just before the window's end. */
const WAITING_MAX_BYTES = TERMINAL_WINDOW_BYTES + STREAM_LIMITS.terminalMessageMaxBytes;
/** The limit on waiting pieces. Small ones wait unjoined only after a gap. */
const WAITING_MAX = 1_024;
/** Pieces up to this size are joined while they wait: each separate piece costs more than its bytes. */
const JOINED_MAX_BYTES = 1024;

const typedSchema = z.object({ type: z.string() });
const KNOWN_NOTICES: ReadonlySet<string> = new Set<TerminalNotice["type"]>(["position", "exit"]);

export class DaemonTerminals implements SandboxTerminals {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  async open(options: TerminalOptions): Promise<Terminal> {
    const { terminalId, command, cwd, env, columns, rows } = options;
    const fields = { terminalId, command, cwd, env, columns, rows };
    const opened = await this.#calls.post(terminalSchema, "/sandlot/terminals/open", fields);
    return this.attach(opened.terminalId);
  }

  attach(terminalId: string, options: { readonly fromOffset?: number } = {}): Promise<Terminal> {
    return this.#calls.attempt((wire) => connectTerminal(wire, terminalId, options.fromOffset));
  }

  list(): Promise<readonly TerminalInfo[]> {
    return this.#calls.get(terminalsSchema, "/sandlot/terminals");
  }

  async close(terminalId: string): Promise<void> {
    await this.#calls.post(foundSchema, "/sandlot/terminals/close", { terminalId });
  }
}

async function connectTerminal(wire: Wire, terminalId: string, fromOffset: number | undefined): Promise<Terminal> {
  const socket = await openSocket(wire, { terminalId, fromOffset });
  return new DaemonTerminal(socket, terminalId, wire.target.sandboxId);
}

async function openSocket(
  wire: Wire,
  query: { readonly terminalId: string; readonly fromOffset: number | undefined },
): Promise<WebSocket> {
  const { WebSocket } = await import("ws");
  const { url, headers, createConnection } = wire.upgrade("/sandlot/terminals/attach", query);
  const { terminalMessageMaxBytes: maxPayload, upgradeMs, refusalMaxBytes } = STREAM_LIMITS;
  const options = {
    ...{ headers, createConnection, perMessageDeflate: false, maxPayload },
    // Our daemon sends no pings; pongs for another peer would queue here while it reads nothing.
    autoPong: false,
    finishRequest: (request: ClientRequest) => {
      // Our daemon sends nothing before its response, and a hostile one could send without end.
      request.once("information", () => request.destroy(new Error("the daemon sent something else than an answer")));
      request.end();
    },
  };
  const socket = new WebSocket(url, options);
  let timer = { cancel: () => {} };
  try {
    return await new Promise((resolve, reject) => {
      timer = wire.timer(upgradeMs, () => {
        reject(new ConnectionLost(`the daemon did not answer within ${upgradeMs} ms`, { hadBegun: true }));
        socket.terminate();
      });
      socket.on("error", (error) => reject(new ConnectionLost(error.message, { cause: error })));
      socket.once("close", () => reject(new ConnectionLost("the daemon ended the connection")));
      // Held until a listener exists: the first frames may come with the response.
      socket.once("open", () => {
        socket.pause();
        resolve(socket);
      });
      socket.once("unexpected-response", (request, response) => {
        const parts: Buffer[] = [];
        let size = 0;
        response.on("data", (part: Buffer) => {
          size += part.length;
          if (size <= refusalMaxBytes) parts.push(part);
          else request.destroy();
        });
        response.on("error", () => {});
        response.on("close", () => {
          request.destroy();
          reject(errorOf(response.statusCode ?? 0, Buffer.concat(parts)));
        });
      });
    });
  } finally {
    timer.cancel();
  }
}

class DaemonTerminal implements Terminal {
  readonly terminalId: string;
  readonly ended: Terminal["ended"];
  readonly output: AsyncIterable<TerminalOutput>;
  readonly #sandboxId: string;
  readonly #socket: WebSocket;
  readonly #waiting: TerminalOutput[] = [];
  #waitingBytes = 0;
  #unknownBytes = 0;
  #offset = 0;
  #dropped = 0;
  #acknowledged = 0;
  #isOver = false;
  #failure: SandlotError | null = null;
  #wake: () => void = () => {};

  constructor(socket: WebSocket, terminalId: string, sandboxId: string) {
    this.#socket = socket;
    this.terminalId = terminalId;
    this.#sandboxId = sandboxId;
    this.output = { [Symbol.asyncIterator]: () => this.#read() };
    this.ended = this.#listen();
    socket.resume();
  }

  write(content: string | Uint8Array): void {
    this.#send(encode(content), true);
  }

  resize(columns: number, rows: number): void {
    this.#send(JSON.stringify({ type: "resize", columns, rows }), false);
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
        if (this.#failure !== null) return;
        try {
          end = this.#take(bytesOf(data), isBinary) ?? end;
        } catch (error) {
          this.#fail(error instanceof SandlotError ? error : badResponse(String(error)));
        }
      });
      this.#socket.on("ping", () => this.#fail(badResponse("its terminal sent a ping")));
      this.#socket.on("pong", () => this.#fail(badResponse("its terminal sent a pong")));
      // An invalid frame, or one that is too long.
      this.#socket.on("error", (error) =>
        this.#fail(badResponse(`its terminal sent a broken frame: ${error.message}`)),
      );
      this.#socket.on("close", () => {
        this.#isOver = true;
        this.#wake();
        resolve(this.#failure === null ? end : null);
      });
    });
  }

  #take(bytes: Buffer, isBinary: boolean): Awaited<Terminal["ended"]> {
    if (isBinary) {
      this.#received(bytes);
      return null;
    }
    const { type } = parseShort(typedSchema, bytes);
    if (!KNOWN_NOTICES.has(type)) return this.#skip(bytes.length);
    this.#unknownBytes = 0;
    const notice = parseShort(daemonTerminalNoticeSchema, bytes);
    if (notice.type === "exit") return { exitCode: notice.exitCode, signal: notice.signal };
    this.#dropped += notice.droppedBytes;
    this.#offset = notice.offset;
    return null;
  }

  /** A notice of an unknown type. */
  #skip(length: number): null {
    this.#unknownBytes += length;
    if (this.#unknownBytes <= STREAM_LIMITS.unknownMaxBytes) return null;
    throw badResponse("its terminal sends nothing but notices of an unknown type");
  }

  #received(bytes: Buffer): void {
    this.#unknownBytes = 0;
    this.#waitingBytes += bytes.length;
    if (this.#waitingBytes > WAITING_MAX_BYTES || this.#waiting.length >= WAITING_MAX || bytes.length === 0)
      throw badResponse("its terminal sent more than it may without being read");
    const last = this.#waiting.at(-1);
    const isNext = last !== undefined && this.#dropped === 0 && last.offset + last.bytes.length === this.#offset;
    if (isNext && last.bytes.length + bytes.length <= JOINED_MAX_BYTES)
      this.#waiting[this.#waiting.length - 1] = { ...last, bytes: Buffer.concat([last.bytes, bytes]) };
    else this.#waiting.push({ offset: this.#offset, droppedBytes: this.#dropped, bytes });
    this.#offset += bytes.length;
    this.#dropped = 0;
    this.#wake();
  }

  async *#read(): AsyncGenerator<TerminalOutput> {
    for (;;) {
      const piece = this.#waiting.shift();
      if (piece !== undefined) {
        yield piece;
        this.#waitingBytes -= piece.bytes.length;
        this.#acknowledge(piece.offset + piece.bytes.length);
      } else if (this.#failure !== null) throw this.#failure;
      else if (this.#isOver) return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }

  #acknowledge(offset: number): void {
    if (this.#waiting.length > 0 && offset - this.#acknowledged < ACKNOWLEDGE_BYTES) return;
    this.#acknowledged = offset;
    this.#send(JSON.stringify({ type: "ack", offset }), false);
  }

  /** Ends the connection, once. The reader gets the error after the received output. */
  #fail(error: SandlotError): void {
    this.#failure ??= error;
    this.#socket.terminate();
    this.#wake();
  }

  #send(content: string | Uint8Array, binary: boolean): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    // One long text is accepted; a further one ends the connection while more than this is unsent.
    if (this.#socket.bufferedAmount <= STREAM_LIMITS.terminalUnsentMaxBytes) this.#socket.send(content, { binary });
    else {
      const problem = "its terminal takes no input";
      this.#fail(new SandlotError("sandbox_unreachable", { sandboxId: this.#sandboxId, problem, retryAfterMs: 1_000 }));
    }
  }
}

function bytesOf(data: RawData): Buffer {
  if (Array.isArray(data)) return Buffer.concat(data);
  return data instanceof ArrayBuffer ? Buffer.from(data) : data;
}
