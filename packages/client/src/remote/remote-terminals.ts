/**
 * Terminals over WebSocket. Opening and listing are requests; a connection carries bytes. The client acknowledges what
 * its reader has taken, so that a fast program waits for a slow reader, and nothing accumulates here.
 */

import {
  type SandboxTerminals,
  SandlotError,
  type Terminal,
  type TerminalInfo,
  type TerminalOptions,
  type TerminalOutput,
  terminalInfoSchema,
  terminalListSchema,
  terminalNoticeSchema,
  WEBSOCKET_KEY_PREFIX,
  WEBSOCKET_PROTOCOL,
  WEBSOCKET_USER_PREFIX,
} from "@sandlot/contract";
import type { z } from "zod";
import { toBytes } from "../wire/bytes.ts";
import { unreachable } from "../wire/errors.ts";
import { pathOf, type RemoteThread, segment } from "./thread-path.ts";

export class RemoteTerminals implements SandboxTerminals {
  readonly #remote: RemoteThread;

  constructor(remote: RemoteThread) {
    this.#remote = remote;
  }

  async open(options: TerminalOptions): Promise<Terminal> {
    this.#remote.check();
    const call = { method: "POST", path: pathOf(this.#remote, "terminals"), json: options } as const;
    const { terminalId } = await this.#remote.transport.json(terminalInfoSchema, call);
    return this.#connect(terminalId, { columns: options.columns, rows: options.rows, offset: 0 });
  }

  async attach(terminalId: string, options: { readonly fromOffset?: number } = {}): Promise<Terminal> {
    const known = (await this.list()).find((one) => one.terminalId === terminalId);
    if (known === undefined) throw new SandlotError("terminal_not_found", { terminalId });
    return this.#connect(terminalId, { columns: known.columns, rows: known.rows, offset: options.fromOffset });
  }

  async list(): Promise<readonly TerminalInfo[]> {
    this.#remote.check();
    const call = { method: "GET", path: pathOf(this.#remote, "terminals"), repeatable: true } as const;
    return (await this.#remote.transport.json(terminalListSchema, call)).terminals;
  }

  async close(terminalId: string): Promise<void> {
    this.#remote.check();
    const path = pathOf(this.#remote, `terminals/${segment(terminalId)}`);
    await this.#remote.transport.done({ method: "DELETE", path, repeatable: true });
  }

  async #connect(
    terminalId: string,
    query: { columns: number; rows: number; offset: number | undefined },
  ): Promise<Terminal> {
    const { transport } = this.#remote;
    const address = transport.address(pathOf(this.#remote, "terminal"), { terminalId, ...query });
    const protocols = [
      WEBSOCKET_PROTOCOL,
      ...(transport.apiKey === null ? [] : [WEBSOCKET_KEY_PREFIX + transport.apiKey]),
      ...(transport.user === null ? [] : [WEBSOCKET_USER_PREFIX + transport.user]),
    ];
    const socket = new WebSocket(address.replace(/^http/, "ws"), protocols);
    const terminal = new RemoteTerminal(socket, terminalId);
    try {
      await terminal.opened;
      return terminal;
    } catch (error) {
      throw unreachable(transport.url, error);
    }
  }
}

/** `null` for what this version does not know. It is read in a listener, whose errors no caller could catch. */
function noticeOf(text: string): TerminalNotice | null {
  try {
    const parsed = terminalNoticeSchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}

type TerminalNotice = z.infer<typeof terminalNoticeSchema>;
type End = { readonly exitCode: number | null; readonly signal: string | null };

class RemoteTerminal implements Terminal {
  readonly terminalId: string;
  readonly opened: Promise<void>;
  readonly ended: Promise<End | null>;
  readonly output: AsyncIterable<TerminalOutput>;
  readonly #socket: WebSocket;
  readonly #waiting: TerminalOutput[] = [];
  #offset = 0;
  #droppedBytes = 0;
  #over = false;
  #wake: () => void = () => undefined;

  constructor(socket: WebSocket, terminalId: string) {
    this.#socket = socket;
    this.terminalId = terminalId;
    socket.binaryType = "arraybuffer";
    this.output = this.#read();
    let exit: (end: End | null) => void = () => undefined;
    this.ended = new Promise((resolve) => {
      exit = resolve;
    });
    this.opened = new Promise((resolve, reject) => {
      socket.addEventListener("message", ({ data }) => {
        if (data instanceof ArrayBuffer) return this.#received(new Uint8Array(data));
        const notice = noticeOf(String(data));
        if (notice === null) return;
        if (notice.type === "exit") return exit({ exitCode: notice.exitCode, signal: notice.signal });
        this.#offset = notice.offset;
        this.#droppedBytes = notice.droppedBytes;
        resolve();
      });
      socket.addEventListener("close", ({ code, reason }) => {
        this.#over = true;
        this.#wake();
        exit(null);
        reject(new Error(`the terminal's connection was closed (${code} ${reason})`));
      });
      // The close event follows and has more details.
      socket.addEventListener("error", () => undefined);
    });
    this.opened.catch(() => undefined);
  }

  write(content: string | Uint8Array): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(toBytes(content) as Uint8Array<ArrayBuffer>);
  }

  resize(columns: number, rows: number): void {
    this.#control({ type: "resize", columns, rows });
  }

  async detach(): Promise<void> {
    this.#socket.close();
    await this.ended;
  }

  async *#read(): AsyncGenerator<TerminalOutput> {
    this.#control({ type: "ack", bytes: this.#offset });
    while (true) {
      const next = this.#waiting.shift();
      if (next !== undefined) {
        yield next;
        this.#control({ type: "ack", bytes: next.offset + next.bytes.byteLength });
      } else if (this.#over) return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }

  #received(bytes: Uint8Array): void {
    this.#waiting.push({ offset: this.#offset, droppedBytes: this.#droppedBytes, bytes });
    this.#offset += bytes.byteLength;
    this.#droppedBytes = 0;
    this.#wake();
  }

  #control(frame: object): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }
}
