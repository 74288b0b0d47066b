/**
 * The writer of timelines: notes what this instance did for a thread, and appends it in batches.
 *
 * Invariants
 * - A note never waits, never throws, and costs no I/O. What is noted after the last batch is lost with the process.
 * - Nothing is lost in silence: what does not fit into the bounds, or could not be written, is counted, and the count is an
 *   entry of its own.
 * - What a sandbox can cause by itself (refused connections, limits, commands in a terminal) has a narrow rate, so
 *   that it cannot push the rest out of the log within minutes.
 */

import type { FleetEvent, InstanceId, ThreadId, TimelineNote, UserId } from "@sandlot/contract";
import type { WorkspaceOwner } from "../../backend/checkpoints.ts";
import type { TimelineLine, Timelines } from "../../backend/timelines.ts";
import type { Settings } from "../../config/settings.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import { isAnonymous } from "../../store/record.ts";
import { atMost } from "../../world/waiting.ts";
import type { Timer, World } from "../../world/world.ts";
import { noteOf } from "./event-note.ts";
import { type About, LineWriter, type Noted } from "./timeline-line.ts";

export interface TimelineRecorderParts {
  readonly world: World;
  readonly bus: EventBus;
  readonly instance: InstanceId;
  readonly timelines: Timelines;
  /** Values that no line may show. */
  readonly secrets: readonly string[];
}

/** `null` where no timelines are kept. */
export function recorderOf({
  settings,
  timelines,
  ...parts
}: Omit<TimelineRecorderParts, "timelines" | "secrets"> & {
  readonly settings: Pick<Settings, "blueprints">;
  readonly timelines: Timelines | undefined;
}): TimelineRecorder | null {
  if (timelines === undefined) return null;
  const secrets = Object.values(settings.blueprints).flatMap(({ blueprint }) => [
    ...(blueprint.network.secrets ?? []),
    ...(blueprint.setup?.network.secrets ?? []),
  ]);
  return new TimelineRecorder({ ...parts, timelines, secrets: [...new Set(secrets.map(({ value }) => value))] });
}

interface Rate {
  readonly perSecond: number;
  readonly burst: number;
}

interface Gathering {
  readonly owner: WorkspaceOwner;
  noted: Noted[];
  lost: number;
  timer: Timer | null;
  writing: Promise<void> | null;
  isFailing: boolean;
  /** What may still be noted, and when that was last refilled, on the monotonic clock. */
  tokens: { usual: number; caused: number };
  refilledAt: number;
}

/** The rates of one thread, and of what its sandbox causes by itself. */
const USUAL: Rate = { perSecond: 100, burst: 1_000 };
const CAUSED: Rate = { perSecond: 1, burst: 100 };
/** Not written yet, in all threads. */
const NOTED_MAX = 20_000;
const THREADS_MAX = 5_000;
const CLOSE_PATIENCE_MS = 5_000;
const RETRY_MS = 5_000;
const BATCH_MAX_BYTES = 32 * 1024;
const PROBLEM_EVERY_MS = 60_000;

export class TimelineRecorder {
  readonly timelines: Timelines;
  readonly #parts: TimelineRecorderParts;
  readonly #writer: LineWriter;
  readonly #gatherings = new Map<string, Gathering>();
  readonly #followers = new Map<string, Set<() => void>>();
  readonly #unfollow: () => void;
  #count = 0;
  #closed = false;
  #problemAt = Number.NEGATIVE_INFINITY;

  constructor(parts: TimelineRecorderParts) {
    this.#parts = parts;
    this.timelines = parts.timelines;
    this.#writer = new LineWriter(parts.instance, parts.secrets);
    this.#unfollow = parts.bus.on((event) => this.#heard(event));
  }

  note(user: UserId | null, thread: ThreadId | null, about: About, note: TimelineNote): void {
    if (user === null || thread === null || isAnonymous(thread) || this.#closed) return;
    const gathering = this.#of({ user, thread });
    if (!this.#admits(gathering, note)) gathering.lost += 1;
    else {
      gathering.noted.push({ at: this.#parts.world.wallMs(), about, note });
      this.#count += 1;
    }
    this.#schedule(gathering);
  }

  /** A thread began with the files of another one. */
  forked(from: WorkspaceOwner, to: WorkspaceOwner): void {
    this.note(from.user, from.thread, NOTHING, { kind: "fork", what: "to", facts: { thread: to.thread } });
    this.note(to.user, to.thread, NOTHING, { kind: "fork", what: "from", facts: { thread: from.thread } });
  }

  /** Removes the thread's timeline. What is noted about this generation, here or elsewhere, is left out from then on. */
  async purge({ user, thread }: WorkspaceOwner, generation: number): Promise<void> {
    const gathering = this.#gatherings.get(keyOf({ user, thread }));
    if (gathering !== undefined) this.#take(gathering);
    await this.timelines.purge({ user, thread }, { generation, at: this.#parts.world.wallMs() });
    this.#wake({ user, thread });
  }

  /** Calls the listener after each batch that this instance has appended for the thread. */
  onAppended(owner: WorkspaceOwner, listener: () => void): () => void {
    const key = keyOf(owner);
    const listeners = this.#followers.get(key) ?? new Set();
    this.#followers.set(key, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) this.#followers.delete(key);
    };
  }

  /** Appends what the thread's readers must see: everything noted until now. */
  async flush(owner: WorkspaceOwner): Promise<void> {
    const gathering = this.#gatherings.get(keyOf(owner));
    if (gathering === undefined) return;
    await gathering.writing;
    if (gathering.noted.length + gathering.lost > 0) await this.#write(gathering);
  }

  /** Appends the rest, in bounded time. */
  async close(): Promise<void> {
    this.#unfollow();
    this.#closed = true;
    const rest = [...this.#gatherings.values()].map(({ owner }) => this.flush(owner));
    await atMost(this.#parts.world, CLOSE_PATIENCE_MS, Promise.all(rest));
    for (const { timer } of this.#gatherings.values()) timer?.cancel();
    await this.timelines.close();
  }

  #heard(event: FleetEvent): void {
    if (!("thread" in event) || event.thread === null) return;
    const note = noteOf(event);
    if (note === null) return;
    const about = "sandboxId" in event ? { sandboxId: event.sandboxId, generation: event.generation } : NOTHING;
    this.note(event.user, event.thread, about, note);
  }

  #of(owner: WorkspaceOwner): Gathering {
    const key = keyOf(owner);
    const known = this.#gatherings.get(key);
    if (known !== undefined) return known;
    if (this.#gatherings.size >= THREADS_MAX) this.#forgetQuiet();
    const tokens = { usual: USUAL.burst, caused: CAUSED.burst };
    const refilledAt = this.#parts.world.monotonicMs();
    const gathering: Gathering = {
      owner,
      noted: [],
      lost: 0,
      timer: null,
      writing: null,
      isFailing: false,
      tokens,
      refilledAt,
    };
    this.#gatherings.set(key, gathering);
    return gathering;
  }

  #forgetQuiet(): void {
    for (const [key, { noted, lost, writing }] of this.#gatherings) {
      if (noted.length + lost > 0 || writing !== null) continue;
      this.#gatherings.delete(key);
      return;
    }
  }

  #admits(gathering: Gathering, { kind, facts }: TimelineNote): boolean {
    const now = this.#parts.world.monotonicMs();
    const { tokens } = gathering;
    const seconds = Math.max(0, now - gathering.refilledAt) / 1_000;
    gathering.refilledAt = now;
    tokens.usual = Math.min(USUAL.burst, tokens.usual + seconds * USUAL.perSecond);
    tokens.caused = Math.min(CAUSED.burst, tokens.caused + seconds * CAUSED.perSecond);
    const isCaused = kind === "refused" || kind === "limit" || ("way" in facts && facts.way === "terminal");
    if (this.#count >= NOTED_MAX || tokens.usual < 1 || (isCaused && tokens.caused < 1)) return false;
    tokens.usual -= 1;
    if (isCaused) tokens.caused -= 1;
    return true;
  }

  #schedule(gathering: Gathering): void {
    if (gathering.timer !== null || gathering.writing !== null) return;
    const write = () => void this.#write(gathering);
    const delayMs = gathering.isFailing ? RETRY_MS : this.timelines.gatherMs;
    gathering.timer = this.#parts.world.timer(delayMs, write, { background: true });
  }

  #write(gathering: Gathering): Promise<void> {
    gathering.timer?.cancel();
    gathering.timer = null;
    gathering.writing ??= this.#append(gathering).finally(() => {
      gathering.writing = null;
      if (gathering.noted.length + gathering.lost > 0 && !this.#closed) this.#schedule(gathering);
    });
    return gathering.writing;
  }

  async #append(gathering: Gathering): Promise<void> {
    const { owner } = gathering;
    const { noted, lost } = this.#take(gathering);
    const lines: TimelineLine[] = [];
    let left = lost;
    for (const one of noted) {
      const line = this.#writer.line(one);
      if (line === null) left += 1;
      else lines.push(line);
    }
    const loss = left === 0 ? null : this.#writer.line(this.#lossOf(left));
    if (loss !== null) lines.push(loss);
    let written = 0;
    try {
      for (const batch of batchesOf(lines)) {
        await this.timelines.append(owner, batch);
        written += batch.length;
      }
      gathering.isFailing = false;
      this.#wake(owner);
    } catch (error) {
      gathering.isFailing = true;
      gathering.lost += left + noted.length - Math.min(written, noted.length);
      this.#problem(error);
    }
  }

  #lossOf(count: number): Noted {
    const note = { kind: "lost", what: "entries", facts: { count } } as const;
    return { at: this.#parts.world.wallMs(), about: NOTHING, note };
  }

  #take(gathering: Gathering): { readonly noted: readonly Noted[]; readonly lost: number } {
    const { noted, lost } = gathering;
    gathering.noted = [];
    gathering.lost = 0;
    this.#count -= noted.length;
    return { noted, lost };
  }

  #wake(owner: WorkspaceOwner): void {
    for (const listener of this.#followers.get(keyOf(owner)) ?? []) listener();
  }

  /** A disk that is full would otherwise be reported several times a second. */
  #problem(error: unknown): void {
    const { world, bus } = this.#parts;
    const now = world.monotonicMs();
    if (now - this.#problemAt < PROBLEM_EVERY_MS) return;
    this.#problemAt = now;
    bus.emit({ type: "housekeeping-failed", task: "timeline", problem: problemOf(error) });
  }
}

const NOTHING: About = { sandboxId: null, generation: null };

/** Pieces that a log has room for. */
function* batchesOf(lines: readonly TimelineLine[]): Generator<readonly TimelineLine[]> {
  let batch: TimelineLine[] = [];
  let bytes = 0;
  for (const line of lines) {
    const size = Buffer.byteLength(line.text) + 1;
    if (bytes + size > BATCH_MAX_BYTES) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push(line);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}

function keyOf({ user, thread }: WorkspaceOwner): string {
  return `${user}\n${thread}`;
}
