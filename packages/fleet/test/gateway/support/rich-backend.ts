/**
 * The memory backend with additions for a gateway's tests: terminals that echo, a watch, sessions that remember a
 * directory, and ports that are ports of this machine.
 */

import { connect } from "node:net";
import {
  type FileChange,
  type Sandbox,
  type SandboxTerminals,
  SandlotError,
  type Terminal,
  type TerminalOptions,
  type TerminalOutput,
} from "@sandlot/contract";
import type { Attachment, Backend, Target } from "../../../src/backend/backend.ts";

export function richBackend(backend: Backend): Backend {
  const terminals = new Map<string, EchoTerminals>();
  return new Proxy(backend, {
    get(target, name) {
      if (name === "attach")
        return async (to: Target, signal: AbortSignal) => {
          const known = terminals.get(to.sandboxId) ?? new EchoTerminals();
          terminals.set(to.sandboxId, known);
          return enrich(await target.attach(to, signal), known);
        };
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

function enrich(attachment: Attachment, terminals: SandboxTerminals): Attachment {
  const { sandbox } = attachment;
  const rich: Sandbox = {
    ...sandbox,
    terminals,
    files: { ...sandbox.files, watch: (path, options) => watch(sandbox, path, options?.signal) },
  };
  return {
    sandbox: rich,
    closed: attachment.closed,
    close: () => attachment.close(),
    connect: (port) =>
      new Promise((resolve, reject) => {
        const socket = connect(port, "127.0.0.1");
        socket.once("connect", () => resolve(socket)).once("error", reject);
      }),
  };
}

async function* watch(sandbox: Sandbox, path: string, signal?: AbortSignal): AsyncGenerator<FileChange> {
  const names = async () => new Set((await sandbox.files.list(path)).entries.map((entry) => entry.path));
  let before = await names();
  yield { type: "ready", path };
  while (signal?.aborted !== true) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    const now = await names();
    for (const name of now) if (!before.has(name)) yield { type: "created", path: name };
    before = now;
  }
}

/** Prints back what is typed. `exit 3` ends it, `size` prints its size, `flood N` prints N bytes. */
class EchoTerminal {
  readonly id: string;
  readonly createdAt = 0;
  readonly ended: Promise<{ exitCode: number | null; signal: string | null }>;
  attachedCount = 0;
  columns: number;
  rows: number;
  printed = Buffer.alloc(0);
  #end: (end: { exitCode: number | null; signal: string | null }) => void = () => undefined;
  over = false;
  readonly #wakes = new Set<() => void>();

  constructor(id: string, { columns, rows }: TerminalOptions) {
    this.id = id;
    this.columns = columns;
    this.rows = rows;
    this.ended = new Promise((resolve) => (this.#end = resolve));
  }

  write(content: string | Uint8Array): void {
    const text = Buffer.from(content).toString("utf8");
    const flood = /^flood (\d+)/.exec(text);
    if (flood) this.print("x".repeat(Number(flood[1])));
    else if (text.startsWith("size")) this.print(`${this.columns}x${this.rows}\r\n`);
    else if (text.startsWith("exit")) this.finish(Number(text.slice(5)));
    else this.print(text);
  }

  print(text: string): void {
    this.printed = Buffer.concat([this.printed, Buffer.from(text)]);
    this.wake();
  }

  finish(exitCode: number): void {
    this.over = true;
    this.#end({ exitCode, signal: null });
    this.wake();
  }

  wake(): void {
    for (const wake of this.#wakes) wake();
    this.#wakes.clear();
  }

  more(): Promise<void> {
    return new Promise((resolve) => this.#wakes.add(resolve));
  }
}

class EchoTerminals implements SandboxTerminals {
  readonly #open = new Map<string, EchoTerminal>();
  #count = 0;

  async open(options: TerminalOptions): Promise<Terminal> {
    const id = options.terminalId ?? `pty-${++this.#count}`;
    const terminal = new EchoTerminal(id, options);
    this.#open.set(id, terminal);
    void terminal.ended.then(() => this.#open.delete(id));
    return connection(terminal, 0);
  }

  async attach(terminalId: string, options: { fromOffset?: number } = {}): Promise<Terminal> {
    const terminal = this.#open.get(terminalId);
    if (terminal === undefined) throw new SandlotError("terminal_not_found", { terminalId });
    return connection(terminal, options.fromOffset ?? 0);
  }

  async list() {
    return [...this.#open.values()].map(({ id, columns, rows, createdAt, attachedCount }) => ({
      ...{ terminalId: id, columns, rows, createdAt, attachedCount },
      command: ["echo"],
    }));
  }

  async close(terminalId: string): Promise<void> {
    this.#open.get(terminalId)?.finish(129);
  }
}

function connection(terminal: EchoTerminal, from: number): Terminal {
  terminal.attachedCount += 1;
  let attached = true;
  async function* output(): AsyncGenerator<TerminalOutput> {
    let offset = from;
    while (attached) {
      const bytes = terminal.printed.subarray(offset, offset + 16_384);
      if (bytes.byteLength > 0) yield { offset, droppedBytes: 0, bytes };
      else if (terminal.over) return;
      else await terminal.more();
      offset += bytes.byteLength;
    }
  }
  return {
    terminalId: terminal.id,
    write: (content) => terminal.write(content),
    resize: (columns, rows) => Object.assign(terminal, { columns, rows }),
    output: output(),
    ended: terminal.ended,
    async detach() {
      attached = false;
      terminal.attachedCount -= 1;
      terminal.wake();
    },
  };
}
