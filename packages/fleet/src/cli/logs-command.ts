/**
 * `sandlot logs`: what a command of a thread's sandbox printed, as far as the sandbox still holds it.
 *
 * Invariants
 * - A log is only watched: no command waits for this reader, not even one that waits for its followers (`output: "hold"`).
 * - A reader that is too slow misses bytes. Each gap is told on stderr where it stands, and the exit code is then 1.
 */

import {
  type ExecInfo,
  isoTime,
  isSandlotError,
  type Sandbox,
  SandlotError,
  type SessionInfo,
} from "@sandlot/contract";
import { showSize } from "../world/units.ts";
import { namedThread } from "./named-thread.ts";
import { printTable } from "./table.ts";
import { existingLease, type TargetOptions, withTarget } from "./target.ts";
import { EXIT_CODES, printJson, type Terminal } from "./terminal.ts";

export interface LogsCommandOptions extends TargetOptions {
  readonly thread?: string;
  readonly user?: string;
  readonly session?: string;
  readonly follow?: boolean;
  readonly list?: boolean;
  readonly json: boolean;
}

type Stream = "stdout" | "stderr";

/** What a command printed, as far as it is still held; without an id, the one that was started last. */
export async function logsCommand(
  terminal: Terminal,
  execId: string | undefined,
  options: LogsCommandOptions,
  signal: AbortSignal,
): Promise<number> {
  const { session } = options;
  refuseMixed(execId, options);
  const name = { thread: namedThread(options), user: options.user };
  return withTarget(terminal, options, async (target) => {
    await using lease = await existingLease(target, name, "sandlot logs", signal);
    const { sandbox } = lease;
    const isList = options.list === true || (options.json && execId === undefined && session === undefined);
    if (isList) return await listOutputs(terminal, sandbox, options.json);
    const log = new Log(terminal);
    if (session !== undefined) await printSession(log, sandbox, session, signal);
    else await printExec(log, sandbox, await chosenExec(sandbox, execId), options.follow === true, signal);
    return log.finish();
  });
}

function refuseMixed(execId: string | undefined, { session, follow, list }: LogsCommandOptions): void {
  if (session === undefined) return;
  const other =
    execId !== undefined ? "a command's id" : follow === true ? "--follow" : list === true ? "--list" : null;
  if (other === null) return;
  const problem = `it gives the output so far of one session, and cannot be combined with ${other}`;
  throw new SandlotError("invalid_request", { field: "--session", problem });
}

async function chosenExec({ execs }: Sandbox, execId: string | undefined): Promise<ExecInfo> {
  const known = inOrder(await execs.list());
  const found = execId === undefined ? known.at(-1) : known.find((exec) => exec.execId === execId);
  if (found === undefined) throw new SandlotError("exec_not_found", { execId: execId ?? "(none has run)" });
  return found;
}

function inOrder(execs: readonly ExecInfo[]): readonly ExecInfo[] {
  return [...execs].sort((a, b) => a.startedAt - b.startedAt);
}

async function listOutputs(terminal: Terminal, sandbox: Sandbox, json: boolean): Promise<number> {
  const execs = inOrder(await sandbox.execs.list());
  const sessions = await listSessions(sandbox);
  if (json) {
    printJson(terminal, { execs, sessions });
    return EXIT_CODES.ok;
  }
  const rows = execs.map(({ execId, status, exitCode, startedAt, stdoutBytes, stderrBytes, command }) => [
    ...[execId, status, String(exitCode ?? "-"), isoTime(startedAt)],
    ...[showSize(stdoutBytes + stderrBytes), (typeof command === "string" ? command : command.join(" ")).slice(0, 60)],
  ]);
  printTable(terminal, ["EXEC", "STATUS", "EXIT", "STARTED", "OUTPUT", "COMMAND"], rows);
  if (sessions.length === 0) return EXIT_CODES.ok;
  const lines = sessions.map(({ sessionId, busy, createdAt, cwd }) => [
    ...[sessionId, busy ? "busy" : "idle", isoTime(createdAt), cwd],
  ]);
  terminal.out("\n");
  printTable(terminal, ["SESSION", "STATUS", "CREATED", "DIRECTORY"], lines);
  return EXIT_CODES.ok;
}

/** None where the backend has no sessions at all. */
async function listSessions({ sessions }: Sandbox): Promise<readonly SessionInfo[]> {
  try {
    return await sessions.list();
  } catch (error) {
    if (isSandlotError(error, "capability_missing")) return [];
    throw error;
  }
}

/** Without `follow` it stops where the output was when it began. */
async function printExec(
  log: Log,
  { execs }: Sandbox,
  { execId, status, stdoutBytes, stderrBytes }: ExecInfo,
  follow: boolean,
  signal: AbortSignal,
): Promise<void> {
  const isOver = () =>
    !follow && status === "running" && log.offset.stdout >= stdoutBytes && log.offset.stderr >= stderrBytes;
  if (isOver()) return;
  for await (const event of execs.follow(execId, { hold: false, signal })) {
    if (event.type === "end") return;
    if (event.type === "gap") log.skip(event.stream, event.toOffset);
    else if (!(await log.write(event.stream, event.bytes))) return;
    if (isOver()) return;
  }
}

/** In parts, up to where the output was when it began. A command that begins meanwhile belongs to the next look. */
async function printSession(log: Log, { sessions }: Sandbox, sessionId: string, signal: AbortSignal): Promise<void> {
  const first = await sessions.output(sessionId, { signal });
  const isWhole = (stream: Stream) => log.offset[stream] >= first[stream].totalBytes;
  for (let reply = first; ; reply = await sessions.output(sessionId, { from: log.offset, signal })) {
    if (reply.execId !== first.execId) return;
    let hasMoved = false;
    for (const stream of ["stdout", "stderr"] as const) {
      const { text, offset, nextOffset } = reply[stream];
      hasMoved ||= nextOffset > log.offset[stream];
      if (offset > log.offset[stream]) log.skip(stream, offset);
      if (!(await log.write(stream, Buffer.from(text), nextOffset))) return;
    }
    // Half a character at the end of a running command comes with the rest of it.
    if (!hasMoved || (isWhole("stdout") && isWhole("stderr"))) return;
  }
}

/** What was printed and what was missed, by stream. */
class Log {
  readonly #terminal: Terminal;
  readonly offset: Record<Stream, number> = { stdout: 0, stderr: 0 };
  readonly #dropped: Record<Stream, number> = { stdout: 0, stderr: 0 };

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** The sandbox no longer holds the bytes before `toOffset`. */
  skip(stream: Stream, toOffset: number): void {
    const from = this.offset[stream];
    const count = toOffset - from;
    this.#dropped[stream] += count;
    this.offset[stream] = toOffset;
    const which = from === 0 ? `the first ${count} bytes` : `${count} bytes`;
    this.#terminal.error(`[${which} of ${stream} are no longer held]\n`);
  }

  /** `false`: the reader of this command's own output has closed it. */
  async write(
    stream: Stream,
    bytes: Uint8Array,
    nextOffset = this.offset[stream] + bytes.byteLength,
  ): Promise<boolean> {
    this.offset[stream] = nextOffset;
    return bytes.byteLength === 0 || (await this.#terminal.write(stream, bytes));
  }

  finish(): number {
    const { stdout, stderr } = this.#dropped;
    if (stdout + stderr === 0) return EXIT_CODES.ok;
    this.#terminal.error(
      `Error: ${stdout} bytes of stdout and ${stderr} bytes of stderr were dropped before they were read.\n`,
    );
    return EXIT_CODES.failed;
  }
}
