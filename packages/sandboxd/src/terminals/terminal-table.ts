/**
 * The terminals of this sandbox, by id. An ended one can be attached to for a while longer, so that a client whose
 * connection broke at the wrong moment still sees the end.
 */

import { SandlotError, type TerminalInfo } from "@sandlot/contract";
import { timer } from "../clock.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import { Terminal, type TerminalParams } from "./terminal.ts";

const REMEMBERED_MS = 60_000;
/** Each holds at most a ring. */
const REMEMBERED_MAX = 16;

export class TerminalTable {
  readonly #execs: ExecTable;
  readonly #open = new Map<string, Terminal>();
  /** The oldest first. */
  readonly #ended = new Map<string, Terminal>();
  #serial = 0;

  constructor(execs: ExecTable) {
    this.#execs = execs;
  }

  get openCount(): number {
    return this.#open.size;
  }

  /** Opens a terminal, or returns the open one with this id unchanged. */
  open(terminalId: string | null, params: TerminalParams): TerminalInfo {
    const id = terminalId ?? this.#freshId();
    const known = this.#open.get(id);
    if (known !== undefined) return known.info;
    const terminal = new Terminal(this.#execs, id, params);
    const forget = this.#execs.settle(terminal);
    this.#open.set(id, terminal);
    this.#ended.delete(id);
    void terminal.ended.then(() => {
      forget();
      this.#open.delete(id);
      // A closed one is gone; for one that ended by itself a client may have missed its end.
      if (!terminal.isHungUp) this.#remember(terminal);
    });
    return terminal.info;
  }

  find(terminalId: string): Terminal {
    const terminal = this.#open.get(terminalId) ?? this.#ended.get(terminalId);
    if (terminal === undefined) throw new SandlotError("terminal_not_found", { terminalId });
    return terminal;
  }

  list(): TerminalInfo[] {
    return [...this.#open.values()].map(({ info }) => info);
  }

  /** `false`: no open terminal has that id. */
  async close(terminalId: string): Promise<boolean> {
    const terminal = this.#open.get(terminalId);
    await terminal?.close();
    return terminal !== undefined;
  }

  #remember(terminal: Terminal): void {
    this.#ended.set(terminal.id, terminal);
    for (const id of this.#ended.keys()) if (this.#ended.size > REMEMBERED_MAX) this.#ended.delete(id);
    timer(REMEMBERED_MS, () => {
      if (this.#ended.get(terminal.id) === terminal) this.#ended.delete(terminal.id);
    });
  }

  #freshId(): string {
    for (;;) {
      const id = `terminal-${++this.#serial}`;
      if (!this.#open.has(id) && !this.#ended.has(id)) return id;
    }
  }
}
