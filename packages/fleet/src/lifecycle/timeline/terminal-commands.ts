/**
 * The commands that a person types into a terminal, as its shell tells them: the marks of shell integration that editors
 * use (OSC 633), which bash writes through two variables. Terminals ignore them.
 *
 *   E ; <number> <command>    a command begins: the newest line of the shell's history
 *   D ; <exit code>           it has ended: the next prompt comes
 *
 * Every program inside can write such marks, so an entry is what the terminal told, and no proof. A shell other than
 * bash tells nothing.
 *
 * Invariants
 * - The output passes unchanged and is looked at once, from the offset on that was not seen before.
 * - At most `MARK_MAX_BYTES` are kept; a longer mark is cut.
 */

import type { TimelineNote } from "@sandlot/contract";

/** `promptvars` and a history are what an interactive bash has by itself. */
export const SHELL_MARKS: Readonly<Record<string, string>> = {
  PS0: "\\e]633;E;$(HISTTIMEFORMAT= builtin history 1)\\a",
  PROMPT_COMMAND: "builtin printf '\\e]633;D;%s\\a' \"$?\"",
};

const BEGIN = Buffer.from("\u001b]633;");
const BELL = 7;
const ESCAPE = 27;
const MARK_MAX_BYTES = 16 * 1024;
const HISTORY_LINE = /^\s*(\d{1,10})\*?\s+(\S[\s\S]*)$/;

export interface TerminalNotes {
  readonly note: (note: TimelineNote) => void;
  readonly monotonicMs: () => number;
  readonly newId: () => string;
}

interface Running {
  readonly facts: Extract<TimelineNote, { readonly kind: "command"; readonly what: "started" }>["facts"];
  readonly startedAt: number;
}

export class TerminalCommands {
  readonly #terminalId: string;
  readonly #notes: TerminalNotes;
  /** Bytes before it were seen. */
  #offset = 0;
  /** The beginning of a mark whose end has not come. */
  #held: Buffer = Buffer.alloc(0);
  #number: string | null = null;
  #running: Running | null = null;

  constructor(terminalId: string, notes: TerminalNotes) {
    this.#terminalId = terminalId;
    this.#notes = notes;
  }

  /** Output of the terminal, from any of its connections. */
  saw(offset: number, piece: Uint8Array): void {
    const end = offset + piece.byteLength;
    if (end <= this.#offset) return;
    const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
    const fresh = offset < this.#offset ? bytes.subarray(this.#offset - offset) : bytes;
    // Some was dropped: what is held has no end any more.
    if (offset > this.#offset) this.#held = Buffer.alloc(0);
    this.#offset = end;
    if (this.#held.byteLength === 0 && !fresh.includes(ESCAPE)) return;
    this.#scan(this.#held.byteLength === 0 ? fresh : Buffer.concat([this.#held, fresh]), end);
  }

  /** The terminal's program has ended. */
  closed({ exitCode, signal }: { readonly exitCode: number | null; readonly signal: string | null }): void {
    this.#end(exitCode, signal);
  }

  #scan(bytes: Buffer, end: number): void {
    let rest = bytes;
    for (;;) {
      const begin = rest.indexOf(BEGIN);
      if (begin < 0) break;
      const body = rest.subarray(begin + BEGIN.byteLength);
      const stop = endOfMark(body);
      if (stop === null && body.byteLength < MARK_MAX_BYTES) {
        this.#held = Buffer.from(rest.subarray(begin));
        return;
      }
      const mark = body.subarray(0, Math.min(stop ?? MARK_MAX_BYTES, MARK_MAX_BYTES));
      rest = body.subarray(mark.byteLength);
      this.#marked(mark.toString("utf8"), end - rest.byteLength);
    }
    this.#held = beginningOfMark(rest);
  }

  #marked(mark: string, offset: number): void {
    if (mark.startsWith("E;")) this.#begin(mark.slice(2), offset);
    else if (mark.startsWith("D;")) {
      const code = Number(mark.slice(2));
      this.#end(Number.isInteger(code) && code >= 0 && code <= 255 ? code : null, null);
    }
  }

  #begin(line: string, outputOffset: number): void {
    this.#end(null, null);
    const [, number, command] = HISTORY_LINE.exec(line) ?? [];
    if (number === undefined || command === undefined) return;
    // The same line again: the shell's history leaves this command out.
    const hidden = number === this.#number;
    this.#number = number;
    const facts = {
      ...{ id: this.#notes.newId(), way: "terminal" as const, terminalId: this.#terminalId, outputOffset },
      ...(hidden ? { command: "", hidden } : { command }),
    } as const;
    this.#running = { facts, startedAt: this.#notes.monotonicMs() };
    this.#notes.note({ kind: "command", what: "started", facts });
  }

  #end(exitCode: number | null, signal: string | null): void {
    const running = this.#running;
    if (running === null) return;
    this.#running = null;
    const durationMs = this.#notes.monotonicMs() - running.startedAt;
    const facts = { ...running.facts, status: "completed", exitCode, signal, durationMs };
    this.#notes.note({ kind: "command", what: "ended", facts });
  }
}

/** A bell or `ESC \` ends a mark; `null`: it has not come. */
function endOfMark(body: Buffer): number | null {
  const limit = Math.min(body.byteLength, MARK_MAX_BYTES);
  for (let at = 0; at < limit; at += 1) if (body[at] === BELL || body[at] === ESCAPE) return at;
  return null;
}

/** The last bytes, where they may be the beginning of a mark. */
function beginningOfMark(rest: Buffer): Buffer {
  for (let length = Math.min(BEGIN.byteLength - 1, rest.byteLength); length > 0; length -= 1)
    if (rest.subarray(rest.byteLength - length).equals(BEGIN.subarray(0, length)))
      return Buffer.from(rest.subarray(rest.byteLength - length));
  return Buffer.alloc(0);
}
