/**
 * Commands that go on while their caller does something else, each in its own session. The session is named after the
 * command's id, so that another attachment finds it again.
 *
 * Unsupported by AIO, so `capability_missing`: closing a command's stdin, input that is no text, and waiting until all
 * descendants of a command have closed its output.
 */

import {
  type ExecInfo,
  type ExecSignal,
  type FollowEvent,
  type FollowOptions,
  type OutputOptions,
  type OutputSoFar,
  SANDBOX_LIMITS,
  type SandboxExecs,
  SandlotError,
  type WaitForOutputOptions,
  type WaitForOutputReply,
} from "@sandlot/contract";
import { compileRegex, guarded } from "@sandlot/sandboxd/patterns";
import { outputSoFar } from "../../../backend/output-so-far.ts";
import { nextTurn } from "../../../world/system-world.ts";
import { sleep, within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { AioCalls, Ask } from "../calls.ts";
import { missing } from "../checks.ts";
import { anythingSchema } from "../wire/schemas.ts";
import { type Progress, readOn } from "./command.ts";
import type { ExecMemory, Remembered } from "./memory.ts";
import type { BashSessions } from "./sessions.ts";

export function sessionOf(execId: string): string {
  return `sandlot-exec-${execId}`;
}

export class AioExecs implements SandboxExecs {
  readonly #calls: AioCalls;
  readonly #sessions: BashSessions;
  readonly #memory: ExecMemory;

  constructor(calls: AioCalls, sessions: BashSessions, memory: ExecMemory) {
    this.#calls = calls;
    this.#sessions = sessions;
    this.#memory = memory;
  }

  /** Those spawned through this attachment. */
  async list(): Promise<readonly ExecInfo[]> {
    return Promise.all(this.#memory.allSpawned().map((exec) => this.#info(exec)));
  }

  async *follow(execId: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent> {
    if (options.until === "closed") throw missing("follow until closed", "following what a command left behind");
    const startedAt = this.#memory.spawned(execId)?.startedAt ?? this.#calls.world.wallMs();
    let [stdout, stderr] = [options.from?.stdout ?? 0, options.from?.stderr ?? 0];
    for (let wait = false; ; wait = true) {
      const next = await this.#read(execId, { stdout, stderr }, wait, { signal: options.signal });
      yield* outputs("stdout", stdout, next.stdout);
      yield* outputs("stderr", stderr, next.stderr);
      const isNews = next.stdoutEnd > stdout || next.stderrEnd > stderr;
      [stdout, stderr] = [next.stdoutEnd, next.stderrEnd];
      if (wait && !isNews && next.outcome === null) await sleep(this.#calls.world, LOOK_MS, options.signal);
      if (next.outcome === null || isNews) continue;
      const durationMs = Math.max(0, this.#calls.world.wallMs() - startedAt);
      const end = { execId, ...next.outcome, stdoutBytes: stdout, stderrBytes: stderr, durationMs };
      yield { type: "end", end };
      return;
    }
  }

  output(execId: string, options?: OutputOptions): Promise<OutputSoFar> {
    return outputSoFar(this, this.#calls.world, execId, options);
  }

  async signal(execId: string, signal: ExecSignal): Promise<boolean> {
    return this.#sessions.signal(this.#sessionOf(execId), signal);
  }

  /** TERM, a grace period, KILL. */
  async kill(execId: string): Promise<boolean> {
    const sessionId = this.#sessionOf(execId);
    if (!(await this.#sessions.signal(sessionId, "SIGTERM"))) return this.#memory.spawned(execId) !== undefined;
    const deadline = this.#calls.world.monotonicMs() + SANDBOX_LIMITS.killGraceMs;
    while (this.#calls.world.monotonicMs() < deadline) {
      if ((await this.#read(execId, await this.#end(execId), false)).outcome !== null) return true;
      await new Promise<void>((resolve) => this.#calls.world.timer(LOOK_MS, resolve));
    }
    await this.#sessions.signal(sessionId, "SIGKILL");
    return true;
  }

  async writeStdin(execId: string, content: string | Uint8Array, options: { readonly end?: boolean } = {}) {
    const known = this.#memory.spawned(execId);
    if (known === undefined) throw new SandlotError("exec_not_found", { execId });
    if (!known.keepsStdinOpen || known.outcome !== null) throw new SandlotError("stdin_closed", { execId });
    if (options.end === true) throw missing("ending stdin", "input that comes to an end");
    const fields = { session_id: known.sessionId, command_id: known.commandId, input: inputOf(content) };
    const onRefusal = () => new SandlotError("stdin_closed", { execId });
    await this.#calls.post(anythingSchema, "/v1/bash/write", fields, { onRefusal });
  }

  waitForOutput(execId: string, pattern: string, options: WaitForOutputOptions): Promise<WaitForOutputReply> {
    const follow = (signal: AbortSignal) => this.follow(execId, { signal });
    return waitForLine(this.#calls.world, follow, { execId, pattern, ...options });
  }

  async #info(exec: Remembered): Promise<ExecInfo> {
    if (exec.outcome === null)
      await this.#read(exec.execId, { stdout: exec.stdoutBytes, stderr: exec.stderrBytes }, false);
    const { execId, command, startedAt, stdoutBytes, stderrBytes, outcome } = exec;
    const { status, exitCode } = outcome ?? { status: "running" as const, exitCode: null };
    return { execId, command, status, exitCode, pid: null, startedAt, stdoutBytes, stderrBytes };
  }

  async #end(execId: string): Promise<{ stdout: number; stderr: number }> {
    const known = this.#memory.spawned(execId);
    return { stdout: known?.stdoutBytes ?? 0, stderr: known?.stderrBytes ?? 0 };
  }

  async #read(execId: string, from: { stdout: number; stderr: number }, wait: boolean, ask: Ask = {}) {
    const known = this.#memory.spawned(execId);
    const at = { sessionId: this.#sessionOf(execId), commandId: known?.commandId ?? null, ...from };
    const onRefusal = () => new SandlotError("exec_not_found", { execId });
    const next = await readOn(this.#calls, at, wait, { ...ask, onRefusal });
    if (known !== undefined) note(known, next);
    return next;
  }

  #sessionOf(execId: string): string {
    return this.#memory.spawned(execId)?.sessionId ?? sessionOf(execId);
  }
}

const LOOK_MS = 50;
const PIECE_BYTES = 256 * 1024;

function note(known: Remembered, { stdoutEnd, stderrEnd, outcome }: Progress): void {
  known.stdoutBytes = Math.max(known.stdoutBytes, stdoutEnd);
  known.stderrBytes = Math.max(known.stderrBytes, stderrEnd);
  known.outcome = outcome;
}

/** Pieces of one text; other work gets its turn in between. */
async function* outputs(stream: "stdout" | "stderr", offset: number, text: string): AsyncGenerator<FollowEvent> {
  const bytes = Buffer.from(text, "utf8");
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
    if (at > 0) await nextTurn();
    yield { type: "output", stream, offset: offset + at, bytes: bytes.subarray(at, at + PIECE_BYTES) };
  }
}

/** Input is sent as text. */
export function inputOf(content: string | Uint8Array): string {
  if (typeof content === "string") return content;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    throw missing("bytes on stdin", "input that is not UTF-8 text");
  }
}

interface LineWish {
  readonly execId: string;
  readonly pattern: string;
  readonly literal?: boolean;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** The match blocks this whole process, not only one sandbox. */
const MATCH_MAX_CPU_MS = 20;
/** How much of an unfinished line is searched. */
const LINE_MAX_CHARS = 16 * 1024;

async function waitForLine(
  world: World,
  follow: (signal: AbortSignal) => AsyncIterable<FollowEvent>,
  { execId, pattern, literal, timeoutMs, signal }: LineWish,
): Promise<WaitForOutputReply> {
  const expression = literal === true ? null : compileRegex(pattern, "");
  const matches = (line: string) => (expression === null ? line.includes(pattern) : expression.test(line));
  const waitedFor = `${JSON.stringify(pattern)} in the output of ${execId}`;
  const late = () => new SandlotError("wait_timeout", { waitedFor, timeoutMs });
  return within(world, timeoutMs, signal, late, async (bounded) => {
    const partial = { stdout: "", stderr: "" };
    for await (const event of follow(bounded)) {
      if (event.type !== "output") continue;
      const lines = (partial[event.stream] + new TextDecoder().decode(event.bytes)).split("\n");
      const line = guarded(pattern, () => lines.find(matches), MATCH_MAX_CPU_MS);
      if (line !== undefined) return { matched: true, stream: event.stream, line };
      partial[event.stream] = (lines.at(-1) ?? "").slice(-LINE_MAX_CHARS);
    }
    return { matched: false };
  });
}
