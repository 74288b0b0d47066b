/**
 * A sandbox whose commands are noted, whoever starts them: the library, a gateway, the command line or MCP all reach a
 * sandbox through the connection of its slot, and that is what is wrapped.
 *
 * Invariants
 * - A call behaves as without it: same answer, same error, and no wait for a note.
 * - A note has no environment, no input and no output of a command. Output is read later, by `execId` and offset.
 */

import {
  type ExecResult,
  type FollowEnd,
  type FollowEvent,
  isSandlotError,
  type Sandbox,
  type SandboxExecs,
  type SandboxSessions,
  type SandboxTerminals,
  type Terminal,
  type TerminalOutput,
  type TimelineNote,
} from "@sandlot/contract";
import type { Attachment } from "../../backend/backend.ts";
import { overridden, SANDBOX_SHAPE } from "../../backend/sandbox-shape.ts";
import type { Timer } from "../../world/world.ts";
import type { SpawnedCommands } from "./spawned-commands.ts";
import { SHELL_MARKS, TerminalCommands } from "./terminal-commands.ts";
import { COMMAND_MAX_CHARS } from "./timeline-line.ts";

type CommandNote = Extract<TimelineNote, { readonly kind: "command" }>;
type CommandFacts = Extract<CommandNote, { readonly what: "started" }>["facts"];
type Ended = Pick<ExecResult, "status" | "exitCode" | "signal"> & { readonly durationMs?: number };
type Sizes = { readonly stdoutBytes?: number; readonly stderrBytes?: number };

export interface CommandNotes {
  readonly note: (note: TimelineNote) => void;
  readonly monotonicMs: () => number;
  readonly later: (ms: number, fire: () => void) => Timer;
  readonly newId: () => string;
  readonly spawned: SpawnedCommands;
  /** What was seen of a terminal's output, by terminal. */
  readonly terminals: Map<string, TerminalCommands>;
}

/** A command that runs for longer has an entry of its start as well. */
const STARTED_AFTER_MS = 2_000;
const TERMINALS_MAX = 64;

/** The same connection, with a recorded sandbox. */
export function recordedAttachment(attachment: Attachment, notes: CommandNotes): Attachment {
  const { closed } = attachment;
  notes.spawned.follow(attachment.sandbox, closed);
  const connect = attachment.connect?.bind(attachment);
  return {
    sandbox: recordedSandbox(attachment.sandbox, notes),
    closed,
    close: () => attachment.close(),
    ...(connect !== undefined && { connect }),
  };
}

function recordedSandbox(inner: Sandbox, notes: CommandNotes): Sandbox {
  const { execs, sessions, terminals } = inner;
  const { spawned } = notes;
  return overridden<Sandbox>(SANDBOX_SHAPE, inner, {
    exec(command, options) {
      const run = new Run(notes, { way: "exec", command: textOf(command), ...given(options) });
      return run.until(
        () => inner.exec(command, options),
        (result) => ({ ...result, ...sizesOf(result) }),
        // Otherwise the caller has all of it, and the sandbox keeps nothing.
        ({ execId, omitted }) => (omitted === undefined ? {} : { execId }),
      );
    },
    async spawn(command, options) {
      const startedAt = notes.monotonicMs();
      const answer = await inner.spawn(command, options);
      const facts = { way: "spawn", command: textOf(command), ...given(options), execId: answer.execId } as const;
      // The same id again is the same command.
      if (!spawned.has(answer.execId)) {
        const id = notes.newId();
        notes.note({ kind: "command", what: "started", facts: { id, ...facts } });
        spawned.began(answer.execId, (end) => {
          const durationMs = end.durationMs ?? notes.monotonicMs() - startedAt;
          notes.note({ kind: "command", what: "ended", facts: { id, ...facts, ...end, durationMs } });
        });
      }
      return answer;
    },
    execs: overridden<SandboxExecs>(SANDBOX_SHAPE.execs, execs, {
      follow: (execId, options) => followed(execs.follow(execId, options), spawned),
      async list() {
        const infos = await execs.list();
        spawned.saw(infos);
        return infos;
      },
      async output(execId, options) {
        const output = await execs.output(execId, options);
        const { status, exitCode, stdout, stderr } = output;
        const sizes = { stdoutBytes: stdout.totalBytes, stderrBytes: stderr.totalBytes };
        if (status !== "running") spawned.ended(execId, { status, exitCode, signal: null, ...sizes });
        return output;
      },
    }),
    sessions: overridden<SandboxSessions>(SANDBOX_SHAPE.sessions, sessions, {
      exec(sessionId, command, options) {
        const run = new Run(notes, { way: "session", command: textOf(command), sessionId });
        return run.until(
          () => sessions.exec(sessionId, command, options),
          (result) => ({ ...result, ...sizesOf(result) }),
          () => ({}),
        );
      },
    }),
    terminals: overridden<SandboxTerminals>(SANDBOX_SHAPE.terminals, terminals, {
      async open(options) {
        // A caller's own program is not asked for marks, and a caller's own variables win.
        const marked =
          options.command === undefined ? { ...options, env: { ...SHELL_MARKS, ...options.env } } : options;
        const terminal = await terminals.open(marked);
        notes.note({ kind: "terminal", what: "opened", facts: { terminalId: terminal.terminalId } });
        return recordedTerminal(terminal, notes);
      },
      attach: async (terminalId, options) => recordedTerminal(await terminals.attach(terminalId, options), notes),
    }),
  });
}

/** One command that its caller waits for. */
class Run {
  readonly #notes: CommandNotes;
  readonly #facts: CommandFacts;
  readonly #startedAt: number;
  readonly #timer: Timer;

  constructor(notes: CommandNotes, facts: Omit<CommandFacts, "id">) {
    this.#notes = notes;
    this.#facts = { id: notes.newId(), ...facts };
    this.#startedAt = notes.monotonicMs();
    const started = () => notes.note({ kind: "command", what: "started", facts: this.#facts });
    this.#timer = notes.later(STARTED_AFTER_MS, started);
  }

  async until<T>(work: () => Promise<T>, end: (result: T) => Ended & Sizes, more: (result: T) => object): Promise<T> {
    let result: T;
    try {
      result = await work();
    } catch (error) {
      this.#ended({ status: "failed", exitCode: null, signal: null }, { error: codeOf(error) });
      throw error;
    }
    this.#ended(end(result), more(result));
    return result;
  }

  #ended({ status, exitCode, signal, durationMs, stdoutBytes, stderrBytes }: Ended & Sizes, more: object): void {
    this.#timer.cancel();
    const took = durationMs ?? this.#notes.monotonicMs() - this.#startedAt;
    const sizes = stdoutBytes === undefined ? {} : { stdoutBytes, stderrBytes };
    const facts = { ...this.#facts, status, exitCode, signal, durationMs: took, ...sizes, ...more };
    this.#notes.note({ kind: "command", what: "ended", facts } as CommandNote);
  }
}

async function* followed(events: AsyncIterable<FollowEvent>, spawned: SpawnedCommands): AsyncGenerator<FollowEvent> {
  for await (const event of events) {
    if (event.type === "end") spawned.ended(event.end.execId, endOf(event.end));
    yield event;
  }
}

function endOf({ status, exitCode, signal, durationMs, stdoutBytes, stderrBytes }: FollowEnd) {
  return { status, exitCode, signal, durationMs, stdoutBytes, stderrBytes };
}

function recordedTerminal(terminal: Terminal, notes: CommandNotes): Terminal {
  const { terminalId } = terminal;
  const commands = notes.terminals.get(terminalId) ?? new TerminalCommands(terminalId, notes);
  notes.terminals.delete(terminalId);
  notes.terminals.set(terminalId, commands);
  for (const [oldest] of notes.terminals) {
    if (notes.terminals.size <= TERMINALS_MAX) break;
    notes.terminals.delete(oldest);
  }
  void terminal.ended.then((end) => end !== null && commands.closed(end)).catch(() => undefined);
  return {
    terminalId,
    ended: terminal.ended,
    output: seen(terminal.output, commands),
    write: (content) => terminal.write(content),
    resize: (columns, rows) => terminal.resize(columns, rows),
    detach: () => terminal.detach(),
  };
}

async function* seen(
  output: AsyncIterable<TerminalOutput>,
  commands: TerminalCommands,
): AsyncGenerator<TerminalOutput> {
  for await (const piece of output) {
    commands.saw(piece.offset, piece.bytes);
    yield piece;
  }
}

/** Beyond what an entry shows, a command is not looked at. */
function textOf(command: string | readonly string[]): string {
  const max = COMMAND_MAX_CHARS * 8;
  if (typeof command === "string") return command.slice(0, max);
  let text = "";
  for (const word of command) {
    text += `${text === "" ? "" : " "}${quoted(word.slice(0, max))}`;
    if (text.length > max) break;
  }
  return text;
}

/** As a shell would take it for one word. */
function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function given(options: { readonly cwd?: string; readonly execId?: string } = {}) {
  const { cwd, execId } = options;
  return { ...(cwd !== undefined && { cwd }), ...(execId !== undefined && { execId }) };
}

/** The total that it printed. */
function sizesOf(result: Pick<ExecResult, "stdout" | "stderr" | "omitted"> & Partial<ExecResult>): Sizes {
  const { stdout, stderr, stdoutDroppedBytes = 0, stderrDroppedBytes = 0, omitted } = result;
  return {
    stdoutBytes: Buffer.byteLength(stdout) + stdoutDroppedBytes + (omitted?.stdoutBytes ?? 0),
    stderrBytes: Buffer.byteLength(stderr) + stderrDroppedBytes + (omitted?.stderrBytes ?? 0),
  };
}

function codeOf(error: unknown): string {
  return isSandlotError(error)
    ? error.code
    : error instanceof Error && error.name === "AbortError"
      ? "cancelled"
      : "failed";
}
