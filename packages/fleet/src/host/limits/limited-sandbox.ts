/**
 * A sandbox under limits: API writes check the disk budget first, a command that ran into a limit says so, and usage is
 * counted from outside. Nothing else changes.
 *
 * The report is the last line of a command's stderr, for every kind of run: waited for, followed, or in a session. The
 * kernel counts per sandbox, so concurrent commands all get it.
 *
 * Invariant: a follower gets a consistent stream. The line is behind the last byte that the command wrote, is counted at
 * the end, and is the same for all followers of this command, from any offset.
 */

import {
  type ExecResult,
  type FollowEnd,
  type FollowEvent,
  type FollowOptions,
  HOME_LINK,
  isSandlotError,
  type ResourceUsage,
  type Sandbox,
  type SandboxExecs,
  type SandboxFiles,
  type SandboxSessions,
  SandlotError,
  WORKSPACE_ROOT,
  type WriteOptions,
} from "@sandlot/contract";
import { outputSoFar } from "../../backend/output-so-far.ts";
import { overridden, SANDBOX_SHAPE } from "../../backend/sandbox-shape.ts";
import { type Grow, metered } from "../../backend/write-budget.ts";
import { systemTimer } from "../../world/system-world.ts";
import type { DiskBudget } from "./disk/budget.ts";
import type { DiskKeeper } from "./disk/keeper.ts";
import { explainHit, type LimitGroup, type LimitHits, limitHit } from "./limits.ts";

export function limitedSandbox(
  inner: Sandbox,
  group: LimitGroup,
  guard: DiskKeeper | null,
  listener?: ReportListener,
): Sandbox {
  if (guard === null && !group.isCounted) return inner;
  guard?.use(inner);
  const reports = new LimitReports(group, guard, listener);
  const { execs, sessions } = inner;
  const follow: typeof execs.follow = (execId, options) => reports.follow(execs, execId, options);
  return overridden<Sandbox>(SANDBOX_SHAPE, inner, {
    exec: (command, options) => reports.withReport(() => inner.exec(command, options)),
    spawn: async (command, options) => {
      const before = reports.mark();
      const spawned = await inner.spawn(command, options);
      reports.began(spawned.execId, before);
      return spawned;
    },
    execs: overridden<SandboxExecs>(SANDBOX_SHAPE.execs, execs, {
      follow,
      output: (execId, options) =>
        outputSoFar({ list: () => execs.list(), follow }, { timer: systemTimer }, execId, options),
    }),
    sessions: overridden<SandboxSessions>(SANDBOX_SHAPE.sessions, sessions, {
      exec: (sessionId, command, options) => reports.withReport(() => sessions.exec(sessionId, command, options)),
    }),
    files: guard === null ? inner.files : keptFiles(inner.files, guard, listener),
    usage: async () => ({ ...counted(await inner.usage(), group.usage()), ...guard?.usage() }),
  });
}

/** The daemon is asked too: it says whether the sandbox exists, and it may know what is not counted outside. */
function counted(inside: ResourceUsage, outside: ResourceUsage): ResourceUsage {
  return {
    ...inside,
    memoryBytes: outside.memoryBytes ?? inside.memoryBytes,
    memoryMaxBytes: outside.memoryMaxBytes ?? inside.memoryMaxBytes,
    processCount: outside.processCount ?? inside.processCount,
    processMax: outside.processMax ?? inside.processMax,
    cpuMs: outside.cpuMs ?? inside.cpuMs,
  };
}

/** A write that fits into the buffers in between always gets its response. */
const SMALL_BYTES = 64 * 1024;

function keptFiles(inner: SandboxFiles, keeper: DiskKeeper, listener?: ReportListener): SandboxFiles {
  if (keeper.budget !== null) return limitedFiles(inner, keeper.budget);
  return refusableFiles(inner, keeper, () => listener?.onFileLimit?.(keeper.saysOfFile ?? ""));
}

/**
 * Writes that the kernel may refuse. A write that visibly does not fit is not sent: a daemon that gives up in the
 * middle of a long upload cannot say why.
 */
function refusableFiles(inner: SandboxFiles, keeper: DiskKeeper, onRefused: () => void): SandboxFiles {
  const tried = async <T>(path: string, bytes: number, write: (grow: Grow) => Promise<T>): Promise<T> => {
    const room = isInWorkspace(path) ? keeper.room() : Number.POSITIVE_INFINITY;
    let sent = bytes;
    const check = () => {
      if (sent > Math.max(room, SMALL_BYTES)) throw new SandlotError("disk_limit_exceeded", { path });
    };
    try {
      check();
      return await write(async (more) => {
        sent += more;
        check();
      });
    } catch (error) {
      if (isSandlotError(error, "disk_limit_exceeded") && isInWorkspace(path)) onRefused();
      throw error;
    }
  };
  return overridden<SandboxFiles>(SANDBOX_SHAPE.files, inner, {
    write: (path, content, options) =>
      tried(path, Buffer.byteLength(content), () => inner.write(path, content, options)),
    append: (path, content) => tried(path, Buffer.byteLength(content), () => inner.append(path, content)),
    mkdir: (path) => tried(path, 0, () => inner.mkdir(path)),
    upload: (path, content, options) => tried(path, 0, (grow) => inner.upload(path, metered(content, grow), options)),
  });
}

function isInWorkspace(path: string): boolean {
  return [WORKSPACE_ROOT, "/mnt/acp-workspace", HOME_LINK].some((root) => path.startsWith(`${root}/`));
}

function limitedFiles(inner: SandboxFiles, budget: DiskBudget): SandboxFiles {
  const within = <T>(path: string, bytes: number, files: number, write: (grow: Grow) => Promise<T>): Promise<T> =>
    isInWorkspace(path) ? budget.admit(path, bytes, files, write) : write(async () => {});
  return overridden<SandboxFiles>(SANDBOX_SHAPE.files, inner, {
    write: (path, content, options) =>
      within(path, Buffer.byteLength(content), 1, () => inner.write(path, content, options)),
    append: (path, content) => within(path, Buffer.byteLength(content), 0, () => inner.append(path, content)),
    mkdir: (path) => within(path, 0, 1, () => inner.mkdir(path)),
    // An upload that outgrows the budget ends with the error, and its temporary file is removed.
    upload: (path: string, content: AsyncIterable<Uint8Array>, options?: WriteOptions) =>
      within(path, 0, 1, (grow) => inner.upload(path, metered(content, grow), options)),
  });
}

/** The counts of limit hits at some moment. */
interface Mark {
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

class LimitReports {
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
