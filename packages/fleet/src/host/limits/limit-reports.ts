/**
 * Reports which limit a command ran into, as the last line of its stderr, for every kind of run: waited for, followed,
 * or in a session. The kernel counts per sandbox, so concurrent commands all get the report.
 *
 * Invariants
 * - A follower gets a consistent stream: the line is behind the last byte that the command wrote, is counted at the
 *   end, and is the same for all followers of this command, from any offset.
 */

import type { ExecResult, FollowEnd, FollowEvent, FollowOptions, SandboxExecs } from "@sandlot/contract";
import type { DiskKeeper } from "./disk/keeper.ts";
import { explainHit, type LimitGroup, type LimitHits, limitHit } from "./limits.ts";

/** The counts of limit hits at some moment. */
export interface Mark {
  readonly hits: LimitHits;
  readonly stopCount: number;
}

/** Further listeners for a command's limit hits, called when it has ended. */
export interface ReportListener {
  /** A command has ended, with the counts at that time. */
  readonly onEnd?: (hits: LimitHits) => void;
  /** The kernel refused room for a file, which has no counter. */
  readonly onFileLimit?: (because: string) => void;
}

type Outcome = Pick<ExecResult, "status" | "exitCode" | "signal">;

/** Spawned commands that are remembered. Older execs report limits only while followed. */
const REMEMBERED_MAX = 1_000;
/** A program's last lines say why it gave up. */
const TAIL_BYTES = 4_096;
/** A shell's exit code for it: 128 and the number of the signal. */
const FILE_SIZE_EXIT_CODE = 153;
/** The texts of the C library, Node and shells for a file that may not grow. */
const FILE_SIZE_WORDS = /file too large|EFBIG|file size limit exceeded/i;

export class LimitReports {
  readonly #group: LimitGroup;
  readonly #guard: DiskKeeper | null;
  readonly #listener: ReportListener;
  readonly #marks = new Map<string, Mark>();
  readonly #lines = new Map<string, string>();

  constructor(group: LimitGroup, guard: DiskKeeper | null, listener: ReportListener = {}) {
    this.#group = group;
    this.#guard = guard;
    this.#listener = listener;
  }

  /** Called just before a command begins. */
  mark(): Mark {
    this.#guard?.budget?.noteCommand();
    return { hits: this.#group.hits(), stopCount: this.#guard?.stopCount ?? 0 };
  }

  /** Stores the mark taken before a command began. */
  began(execId: string, before: Mark): void {
    remember(this.#marks, execId, before);
  }

  /** Runs a command, and adds the limits it ran into to its result. */
  async withReport<T extends ExecResult>(run: () => Promise<T>): Promise<T> {
    const before = this.mark();
    const result = await run();
    const line = this.#lineFor(before, result, result.stderr.slice(-TAIL_BYTES));
    return line === null ? result : { ...result, stderr: result.stderr + line };
  }

  async *follow(execs: SandboxExecs, execId: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent> {
    const joined = this.mark();
    let tail = Buffer.alloc(0);
    for await (const event of execs.follow(execId, options)) {
      if (event.type === "output" && event.stream === "stderr")
        tail = Buffer.concat([tail, event.bytes]).subarray(-TAIL_BYTES);
      if (event.type === "end") yield* this.#withLine(event.end, joined, tail, options.from?.stderr ?? 0);
      else yield event;
    }
  }

  *#withLine(end: FollowEnd, joined: Mark, tail: Buffer, from: number): Generator<FollowEvent> {
    // A command that ended well was not affected by later hits.
    const before = isGood(end) ? joined : (this.#marks.get(end.execId) ?? joined);
    const line = this.#lines.get(end.execId) ?? this.#lineFor(before, end, tail.toString("utf8"));
    if (line === null) return yield { type: "end", end };
    remember(this.#lines, end.execId, line);
    const bytes = new TextEncoder().encode(line);
    const seen = Math.min(Math.max(0, from - end.stderrBytes), bytes.length);
    if (seen < bytes.length)
      yield { type: "output", stream: "stderr", offset: end.stderrBytes + seen, bytes: bytes.subarray(seen) };
    yield { type: "end", end: { ...end, stderrBytes: end.stderrBytes + bytes.length } };
  }

  /** A separate line, behind the last output. */
  #lineFor(before: Mark, outcome: Outcome, stderr: string): string | null {
    const hits = this.#group.hits();
    this.#listener.onEnd?.(hits);
    const problem = this.#problemOf(before, hits, outcome, stderr);
    if (problem === null) return null;
    return `${stderr === "" || stderr.endsWith("\n") ? "" : "\n"}sandlot: ${problem}\n`;
  }

  #problemOf(before: Mark, hits: LimitHits, outcome: Outcome, stderr: string): string | null {
    const guard = this.#guard;
    if (guard !== null && guard.stopCount !== before.stopCount) return guard.says;
    if (guard !== null && (hitFile(outcome, stderr) || (!isGood(outcome) && guard.hasRefused(stderr)))) {
      const { saysOfFile } = guard;
      if (saysOfFile !== null) this.#listener.onFileLimit?.(saysOfFile);
      return saysOfFile;
    }
    const hit = limitHit(before.hits, hits);
    return hit === null ? null : explainHit(this.#group, hit);
  }
}

function isGood({ status, exitCode }: Outcome): boolean {
  return status === "completed" && exitCode === 0;
}

function hitFile(outcome: Outcome, stderr: string): boolean {
  if (outcome.signal === "SIGXFSZ" || outcome.exitCode === FILE_SIZE_EXIT_CODE) return true;
  return !isGood(outcome) && FILE_SIZE_WORDS.test(stderr);
}

function remember<T>(map: Map<string, T>, key: string, value: T): void {
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > REMEMBERED_MAX && oldest !== undefined) map.delete(oldest);
}
