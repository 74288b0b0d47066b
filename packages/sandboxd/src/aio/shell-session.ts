/**
 * A shell session as in the AIO API: one command at a time, one merged output; a long command can be left running,
 * read, waited for, typed into and ended.
 *
 * Its commands run in a session of the daemon, so directory and variables stay. Their output goes to a file, where it
 * can be read before the command has ended; their stdin is a pipe that stays open, as a terminal's would.
 */

import { spawnSync } from "node:child_process";
import { closeSync, constants, openSync, readFileSync, rmSync, statSync, writeSync } from "node:fs";
import { monotonicMs, sleep, wallMs } from "../clock.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import { SEARCH_PATH } from "../exec/fifo-pool.ts";
import type { Session } from "../sessions/session.ts";
import { quote } from "../sessions/shell-script.ts";
import { OperationProblem } from "./answers.ts";

export type ShellStatus = "running" | "completed" | "no_change_timeout" | "hard_timeout" | "terminated";

export interface ShellParams {
  readonly command: string;
  /** The directory to change to, and to stay in. `null`: the session's. */
  readonly directory: string | null;
  readonly asynchronous: boolean;
  /** How long the caller waits; the command goes on. */
  readonly timeoutMs: number | null;
  /** How long the caller waits while nothing is printed. */
  readonly noChangeTimeoutMs: number | null;
  /** The command is ended after this time. */
  readonly hardTimeoutMs: number | null;
}

interface Running {
  readonly command: string;
  readonly done: Promise<void>;
  status: ShellStatus;
  exitCode: number | null;
  end: () => void;
}

const LOOK_MS = 50;
const NO_CHANGE_DEFAULT_MS = 120_000;

let serial = 0;

export class ShellSession {
  readonly id: string;
  readonly createdAt = wallMs();
  noChangeTimeoutMs: number = NO_CHANGE_DEFAULT_MS;
  lastUsedAt = wallMs();
  readonly #session: Session;
  readonly #output: string;
  readonly #input: string;
  #inputFd: number | null = null;
  #last: Running | null = null;

  constructor(session: Session, execs: ExecTable) {
    this.id = session.id;
    this.#session = session;
    const base = `${execs.around.temporaryDirectory}/.sandboxd-aio-${process.pid}-${++serial}`;
    this.#output = `${base}-output`;
    this.#input = `${base}-input`;
    if (spawnSync("mkfifo", ["-m", "600", this.#input], { env: { PATH: SEARCH_PATH } }).status === 0)
      this.#inputFd = openSync(this.#input, constants.O_RDWR | constants.O_NONBLOCK);
  }

  get workingDirectory(): string {
    return this.#session.info.cwd;
  }

  get status(): ShellStatus {
    return this.#last?.status ?? "completed";
  }

  get isRunning(): boolean {
    return this.#last?.status === "running";
  }

  get command(): string | null {
    return this.#last?.command ?? null;
  }

  get exitCode(): number | null {
    return this.#last?.exitCode ?? null;
  }

  /** All output of the last command so far. */
  output(): string {
    try {
      return readFileSync(this.#output, "utf8");
    } catch {
      return "";
    }
  }

  /** Returns the command's end, or why the wait ended. */
  async run(params: ShellParams): Promise<ShellStatus> {
    if (this.isRunning) throw new OperationProblem(`Session ${this.id} is still running a command`);
    this.lastUsedAt = wallMs();
    const running = this.#start(params);
    if (params.asynchronous) return running.status;
    return this.wait(params.timeoutMs, params.noChangeTimeoutMs ?? this.noChangeTimeoutMs);
  }

  /** Until the command has ended, until the time is over, or until nothing was printed for a while. */
  async wait(timeoutMs: number | null, noChangeTimeoutMs: number | null): Promise<ShellStatus> {
    const running = this.#last;
    if (running === null) return "completed";
    const until = timeoutMs === null ? Number.POSITIVE_INFINITY : monotonicMs() + timeoutMs;
    let size = this.#size();
    let changedAt = monotonicMs();
    while (running.status === "running") {
      await Promise.race([running.done, sleep(LOOK_MS)]);
      const now = monotonicMs();
      if (this.#size() !== size) [size, changedAt] = [this.#size(), now];
      if (running.status !== "running") break;
      if (now >= until) return "running";
      if (noChangeTimeoutMs !== null && now - changedAt >= noChangeTimeoutMs) return "no_change_timeout";
    }
    return running.status;
  }

  type(input: string): void {
    if (!this.isRunning) throw new OperationProblem(`Session ${this.id} runs nothing`);
    if (this.#inputFd === null) throw new OperationProblem("This sandbox cannot give input to a command");
    writeSync(this.#inputFd, input);
    this.lastUsedAt = wallMs();
  }

  /** Ends the running command. */
  async kill(): Promise<ShellStatus> {
    const running = this.#last;
    if (running?.status !== "running") throw new OperationProblem(`Session ${this.id} runs nothing`);
    running.end();
    await running.done;
    return running.status;
  }

  dispose(): void {
    if (this.#inputFd !== null) closeSync(this.#inputFd);
    this.#inputFd = null;
    for (const path of [this.#output, this.#input]) rmSync(path, { force: true });
  }

  #start({ command, directory, hardTimeoutMs }: ShellParams): Running {
    rmSync(this.#output, { force: true });
    let end = () => {};
    const input = this.#inputFd === null ? "/dev/null" : this.#input;
    const executed = this.#session.exec({
      command: wrapped(command, directory, `<${quote(input)} >${quote(this.#output)} 2>&1`),
      stdin: null,
      timeoutMs: hardTimeoutMs ?? 0,
      isAbandoned: () => false,
      onAbandoned: (listener) => {
        end = listener;
      },
    });
    const running: Running = {
      command,
      status: "running",
      exitCode: null,
      end: () => end(),
      done: executed.then((result) => {
        running.exitCode = result.exitCode;
        running.status =
          result.status === "timed_out" ? "hard_timeout" : result.status === "killed" ? "terminated" : "completed";
        // The shell's own error, for a command that it could not parse, is not in the file.
        const { bytes } = result.stderr;
        if (bytes.length > 0 && this.#size() === 0) this.#say(bytes.toString("utf8"));
      }),
    };
    running.done.catch(() => {
      running.status = "terminated";
    });
    this.#last = running;
    return running;
  }

  #say(text: string): void {
    const fd = openSync(this.#output, "a", 0o600);
    writeSync(fd, text);
    closeSync(fd);
  }

  #size(): number {
    return statSync(this.#output, { throwIfNoEntry: false })?.size ?? 0;
  }
}

/**
 * The command is a word that the shell evaluates, so an empty one, a comment or a syntax error affects only itself:
 * nothing of this text is part of it, and the shell's message about it goes to its output. A directory that cannot be
 * entered fails the command, and leaves the shell unchanged.
 */
function wrapped(command: string, directory: string | null, streams: string): string {
  // `command`: without it some shells end at a syntax error in evaluated text.
  const evaluate = `\\command eval ${quote(command)}`;
  return directory === null ? `${evaluate} ${streams}` : `{ cd -- ${quote(directory)} && ${evaluate}; } ${streams}`;
}
