/**
 * A child as main sees it: a process to start, stop, continue and kill, and its reports so far.
 *
 * Invariants
 * - A signal goes only to a process that this object started and whose exit it has not seen.
 * - A call is here from its start until it settles; what is here when a survivor has finished never settled.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { openSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type Command, type Note, readLines } from "../wire.ts";

export interface Call {
  readonly kind: string;
  readonly owner: string;
  readonly startedAt: number;
  readonly deadlineMs: number;
}

export interface ChildOptions {
  readonly name: string;
  readonly program: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly logPath: string;
  readonly onNote: (child: Child, note: Note) => void;
  readonly onExit: (child: Child, code: number | null, signal: string | null) => void;
}

/** How long the kernel may take until a stopped process is seen as stopped. */
const STANDSTILL_MAX_MS = 200;

export class Child {
  readonly name: string;
  readonly calls = new Map<number, Call>();
  readonly exited: Promise<void>;
  /** When it was sent to work; `null` while it waits in reserve. */
  wentAt: number | null = null;
  isLoaded = false;
  isOpen = false;
  isGone = false;
  /** Asked to close, so its exit is expected. */
  isClosing = false;
  /** Not to be killed before this moment, so that some live long enough for slow operations. */
  protectedUntil = 0;
  #stoppedAt: number | null = null;
  #pauses: { readonly from: number; readonly to: number }[] = [];
  readonly #process: ChildProcess;

  constructor(options: ChildOptions) {
    this.name = options.name;
    const stderr = openSync(`${options.logPath}.stderr`, "a");
    const argv = ["--conditions=sandlot-source", options.program];
    this.#process = spawn(process.execPath, argv, { stdio: ["pipe", "pipe", stderr], env: { ...options.environment } });
    this.#process.stdin?.on("error", () => {});
    this.exited = new Promise((resolve) => {
      this.#process.once("close", (code, signal) => {
        this.isGone = true;
        this.isOpen = false;
        options.onExit(this, code, signal);
        resolve();
      });
    });
    if (this.#process.stdout !== null) {
      readLines<Note>(this.#process.stdout, (note) => {
        if (note.note === "loaded") this.isLoaded = true;
        if (note.note === "open") this.isOpen = true;
        options.onNote(this, note);
      });
    }
  }

  get pid(): number {
    return this.#process.pid ?? -1;
  }

  get isStopped(): boolean {
    return this.#stoppedAt !== null;
  }

  send(command: Command): void {
    if (command.command === "go") this.wentAt = performance.now();
    if (command.command === "close") this.isClosing = true;
    this.#process.stdin?.write(`${JSON.stringify(command)}\n`);
  }

  /** Resolves when it is stopped: what the store shows now is what it leaves. */
  async stop(): Promise<void> {
    if (this.isGone) return;
    this.#stoppedAt ??= performance.now();
    this.#process.kill("SIGSTOP");
    const until = performance.now() + STANDSTILL_MAX_MS;
    while (!this.#standsStill() && performance.now() < until) await sleep(1);
  }

  resume(): void {
    if (this.#stoppedAt === null || this.isGone) return;
    this.#pauses.push({ from: this.#stoppedAt, to: performance.now() });
    this.#stoppedAt = null;
    this.#process.kill("SIGCONT");
  }

  async kill(): Promise<void> {
    if (!this.isGone) this.#process.kill("SIGKILL");
    await this.exited;
  }

  /** For an exit of main that cannot wait. */
  killNow(): void {
    if (!this.isGone) this.#process.kill("SIGKILL");
  }

  /** How long it was stopped since `from`: a stopped caller cannot get a response. */
  pausedSince(from: number): number {
    const running = this.#stoppedAt === null ? [] : [{ from: this.#stoppedAt, to: performance.now() }];
    return [...this.#pauses, ...running].reduce(
      (sum, pause) => sum + Math.max(0, pause.to - Math.max(pause.from, from)),
      0,
    );
  }

  #standsStill(): boolean {
    if (this.isGone) return true;
    try {
      const stat = readFileSync(`/proc/${this.pid}/stat`, "utf8");
      return "TtZX".includes(stat.slice(stat.lastIndexOf(")") + 2)[0] ?? "");
    } catch {
      return true;
    }
  }
}
