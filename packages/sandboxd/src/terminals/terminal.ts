/**
 * One terminal: a program, its pseudo terminal, its recent output, and the attached readers.
 *
 *   open ──▶ running ──▶ ended (the program is gone and all its output was read)
 *              └ close: the line is hung up, the program gets HUP, after a grace period KILL
 *
 * Invariants
 * - Output is held in a bounded ring by byte offset. Without readers the oldest is dropped.
 * - With readers, reading stops when the slowest is more than a window behind: the programs wait.
 * - No other program ever gets the daemon's side of the terminal.
 */

import { closeSync, constants, openSync, readSync } from "node:fs";
import { ReadStream } from "node:tty";
import { SandlotError, TERMINAL_WINDOW_BYTES, type TerminalInfo } from "@sandlot/contract";
import { bootTicks, monotonicMs, timer, wallMs } from "../clock.ts";
import { asCommand } from "../exec/as-command.ts";
import { checkDirectory, shell } from "../exec/command.ts";
import type { ExecTable, Resident } from "../exec/exec-table.ts";
import { SEARCH_PATH } from "../exec/fifo-pool.ts";
import { maskDescriptor, maskedStdio } from "../exec/masked-descriptors.ts";
import { OutputRing } from "../exec/output-ring.ts";
import { type ExecTrace, MARKER_NAME, type ProcessRow } from "../exec/process-table.ts";
import { tagNextChild } from "../exec/process-tag.ts";
import { type StartedProcess, startProcess } from "../processes/start-process.ts";
import { noTerminals, openPty, resizePty } from "./pty.ts";

export interface TerminalParams {
  readonly command: readonly string[] | null;
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly columns: number;
  readonly rows: number;
}

/** An attached client. */
export interface TerminalReader {
  /** The offset up to which it has read. */
  readonly readOffset: number;
  /** Called for more output, or the end. */
  notice(): void;
}

export interface TerminalEnd {
  readonly exitCode: number | null;
  readonly signal: string | null;
}

/** Several times what a reader may be behind: a client that attaches again finds the last screens. */
const HELD_BYTES = 4 * TERMINAL_WINDOW_BYTES;
/** After its program's end, a terminal that other processes still have open is read for this long. */
const LINGER_MS = 200;
const TAIL_LOOK_MS = 5;
/** Reads per turn. */
const TAIL_READS_MAX = 64;
const tail = Buffer.allocUnsafeSlow(64 * 1024);
const INPUT_MAX_BYTES = 1024 * 1024;
const TERMINAL_ENVIRONMENT = { TERM: "xterm-256color", COLORTERM: "truecolor" };

export class Terminal implements Resident {
  readonly id: string;
  readonly output = new OutputRing(HELD_BYTES);
  readonly ended: Promise<void>;
  readonly #execs: ExecTable;
  readonly #key: string;
  readonly #command: readonly string[];
  readonly #createdAt = wallMs();
  readonly #startTicks = bootTicks();
  readonly #readers = new Set<TerminalReader>();
  readonly #child: StartedProcess;
  readonly #masterFd: number;
  readonly #line: ReadStream;
  #columns: number;
  #rows: number;
  #exit: TerminalEnd | null = null;
  #slaveFd: number | null;
  #isPaused = false;
  #isHungUp = false;
  #byHand = false;

  constructor(execs: ExecTable, id: string, params: TerminalParams) {
    const { environment, defaultCwd, marker, commandPrefix } = execs.around;
    const cwd = params.cwd ?? defaultCwd;
    checkDirectory(cwd);
    this.id = id;
    this.#execs = execs;
    this.#key = execs.admit();
    this.#command = params.command ?? [shell().file];
    this.#columns = params.columns;
    this.#rows = params.rows;
    const { masterFd, slavePath } = openPty(params.columns, params.rows);
    this.#masterFd = masterFd;
    const unmask = maskDescriptor(masterFd);
    this.#line = new ReadStream(masterFd);
    this.#line.once("close", unmask);
    this.#slaveFd = openSync(slavePath, constants.O_RDWR | constants.O_NOCTTY);
    try {
      const env = { ...TERMINAL_ENVIRONMENT, ...environment, ...params.env, [MARKER_NAME]: marker(this.#key) };
      this.#child = startProgram([...commandPrefix, ...this.#command], this.#slaveFd, cwd, env, this.#key);
    } catch (error) {
      this.#letGo();
      this.#line.destroy();
      throw error;
    }
    this.#child.once("exit", (exitCode, signal) => this.#exited({ exitCode, signal }));
    this.#child.once("error", () => this.#exited({ exitCode: 127, signal: null }));
    this.ended = this.#read();
  }

  get info(): TerminalInfo {
    return {
      terminalId: this.id,
      command: this.#command,
      columns: this.#columns,
      rows: this.#rows,
      createdAt: this.#createdAt,
      attachedCount: this.#readers.size,
    };
  }

  get trace(): ExecTrace {
    return { key: this.#key, pid: this.#child.pid ?? null, startTicks: this.#startTicks, alone: false };
  }

  /** Whether it was closed. */
  get isHungUp(): boolean {
    return this.#isHungUp;
  }

  /** How its program ended, once all its output is in the ring. */
  get end(): TerminalEnd | null {
    return this.output.closed ? this.#exit : null;
  }

  /** Its own shell waiting for input is no work; an attached client is. */
  isBusy(members: readonly ProcessRow[]): boolean {
    return this.#readers.size > 0 || members.some(({ pid }) => pid !== this.#child.pid);
  }

  /** Returns a detach function. */
  attach(reader: TerminalReader): () => void {
    this.#readers.add(reader);
    this.balance();
    return () => {
      this.#readers.delete(reader);
      this.balance();
    };
  }

  /** `false`: its buffer is full; `onRoom` is called when there is room again. */
  write(bytes: Uint8Array, onRoom: () => void): boolean {
    if (this.#line.destroyed) return true;
    this.#line.write(bytes);
    if (this.#line.writableLength < INPUT_MAX_BYTES) return true;
    this.#line.once("drain", onRoom);
    return false;
  }

  resize(columns: number, rows: number): void {
    this.#columns = columns;
    this.#rows = rows;
    if (!this.#line.destroyed) resizePty(this.#masterFd, columns, rows);
  }

  /** Reads on, or waits, depending on the slowest reader. */
  balance(): void {
    let slowest = this.output.endOffset;
    for (const { readOffset } of this.#readers) slowest = Math.min(slowest, readOffset);
    const mustWait = this.output.endOffset - slowest >= TERMINAL_WINDOW_BYTES;
    if (mustWait === this.#isPaused) return;
    this.#isPaused = mustWait;
    if (this.#byHand) return;
    if (mustWait) this.#line.pause();
    else this.#line.resume();
  }

  /** Hangs up, and ends the program if that is not enough. Processes that left the terminal on purpose go on. */
  async close(): Promise<void> {
    this.#isHungUp = true;
    this.#letGo();
    this.#line.destroy();
    this.#signal("SIGHUP");
    // A stopped program would receive the signal only when it continues.
    this.#signal("SIGCONT");
    const late = timer(this.#execs.around.killGraceMs, () => this.#signal("SIGKILL"));
    await this.ended;
    late.cancel();
  }

  #read(): Promise<void> {
    this.#line.on("data", (bytes: Buffer) => this.#received(bytes));
    // EIO: the other side is closed.
    this.#line.on("error", () => {});
    return new Promise((resolve) => {
      const settle = (): void => {
        if (!this.#line.destroyed || this.#exit === null || this.output.closed) return;
        this.output.close();
        for (const reader of this.#readers) reader.notice();
        resolve();
      };
      this.#line.once("close", settle);
      this.#child.once("exit", settle);
      this.#child.once("error", settle);
    });
  }

  #received(bytes: Buffer): void {
    this.output.write(bytes);
    for (const reader of this.#readers) reader.notice();
    this.balance();
  }

  #exited(end: TerminalEnd): void {
    this.#exit ??= end;
    this.#readRest();
  }

  /** First what the stream has already read, at the readers' pace; then the rest in the line. */
  #readRest(): void {
    if (this.#line.destroyed) return;
    if (this.#isPaused || this.#line.readableLength > 0) {
      timer(TAIL_LOOK_MS, () => this.#readRest());
      return;
    }
    this.#byHand = true;
    // Pausing alone lets it read one chunk more.
    (this.#line as unknown as { readonly _handle: { readStop(): void } | null })._handle?.readStop();
    this.#letGo();
    this.#readTail(monotonicMs() + LINGER_MS);
  }

  /**
   * The rest of the output after the program's end. Read by hand, because libuv treats the hang-up as the end after one
   * short read, and would lose the rest. The kernel reports the real end, unless other processes have the terminal
   * open; the wait for those is short.
   */
  #readTail(until: number): void {
    let deadline = until;
    for (let reads = 0; reads < TAIL_READS_MAX && !this.#isPaused && !this.#line.destroyed; reads++) {
      const count = readNow(this.#masterFd);
      if (count === "end" || (count === "nothing" && monotonicMs() > deadline)) this.#line.destroy();
      if (typeof count === "string") break;
      this.#received(tail.subarray(0, count));
      deadline = monotonicMs() + LINGER_MS;
    }
    if (!this.#line.destroyed) timer(TAIL_LOOK_MS, () => this.#readTail(this.#isPaused ? Infinity : deadline));
  }

  /** Closes our own descriptor of the program's side, which keeps the line from hanging up before it was read. */
  #letGo(): void {
    if (this.#slaveFd !== null) closeSync(this.#slaveFd);
    this.#slaveFd = null;
  }

  #signal(name: NodeJS.Signals): void {
    const pid = this.#child.pid;
    if (pid === undefined || this.#exit !== null) return;
    try {
      process.kill(-pid, name);
    } catch {
      // It has ended meanwhile.
    }
  }
}

function readNow(fd: number): number | "nothing" | "end" {
  try {
    return readSync(fd, tail, 0, tail.length, null) || "end";
  } catch (error) {
    // EIO: the other side is closed, and everything was read.
    return (error as NodeJS.ErrnoException).code === "EAGAIN" ? "nothing" : "end";
  }
}

/**
 * Starts a program in its own session, with a terminal as its controlling one. Node can create the session but not set
 * the terminal; `setsid` does both. The native part could fork, too, but its child would inherit every other terminal.
 * Throws when it cannot be started at all. A missing program ends with 127.
 */
function startProgram(
  command: readonly string[],
  terminalFd: number,
  cwd: string,
  env: Readonly<Record<string, string>>,
  key: string,
): StartedProcess {
  const setsid = findProgram("setsid");
  if (setsid === null) throw noTerminals("a terminal, for the program setsid");
  try {
    const stdio = maskedStdio([terminalFd, terminalFd, terminalFd]);
    tagNextChild(key);
    return asCommand(() => startProcess(setsid, ["-c", ...command], { cwd, env, stdio }));
  } catch (error) {
    const problem = (error as Error).message;
    throw new SandlotError("invalid_request", { field: "command", problem: `it cannot be started: ${problem}` });
  }
}

function findProgram(name: string): string | null {
  for (const directory of SEARCH_PATH.split(":")) {
    try {
      closeSync(openSync(`${directory}/${name}`, constants.O_RDONLY));
      return `${directory}/${name}`;
    } catch {
      // Not in this directory.
    }
  }
  return null;
}
