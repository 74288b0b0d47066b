/**
 * `fleet.timeline`: reading the timelines of threads.
 *
 * Invariants
 * - What this instance has noted before a read is in it.
 * - A thread of another engine is refused with the gateways to ask: its timeline lies there.
 * - A follower gets every entry once, in order. Where entries were dropped before it came to them, it is told.
 */

import {
  parseThreadId,
  SandlotError,
  type ThreadId,
  type TimelineEntry,
  type TimelineKind,
  type TimelinePage,
  type UserId,
} from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type { WorkspaceOwner } from "../../backend/checkpoints.ts";
import type { TimelineText } from "../../backend/timelines.ts";
import { parseUser } from "../../config/call-options.ts";
import type { Settings } from "../../config/settings.ts";
import type { FleetTimeline, FollowedEntry, ThreadKeyInput, TimelineFilter, TimelineRead } from "../../fleet.ts";
import type { Store } from "../../store/store.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { throwIfElsewhere } from "../session/refusals.ts";
import { entriesOf } from "./timeline-line.ts";
import type { TimelineRecorder } from "./timeline-recorder.ts";

export interface ThreadTimelineParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  /** `null`: no timelines are kept. */
  readonly recorder: TimelineRecorder | null;
  readonly ending: AbortSignal;
}

const LIMIT_DEFAULT = 200;
/** How often a follower looks for what other instances have appended. */
const LOOK_MS = 1_000;
/** Some milliseconds' worth. */
const AT_ONCE = 250;

export class ThreadTimeline implements FleetTimeline {
  readonly #parts: ThreadTimelineParts;

  constructor(parts: ThreadTimelineParts) {
    this.#parts = parts;
  }

  get isKept(): boolean {
    return this.#parts.recorder !== null;
  }

  async read(key: ThreadKeyInput, query: TimelineRead = {}): Promise<TimelinePage> {
    const { owner, recorder } = await this.#of(key);
    await recorder.flush(owner);
    const { from, before = Number.POSITIVE_INFINITY, limit = LIMIT_DEFAULT } = query;
    const text = await recorder.timelines.read(owner, from);
    if (text === null) return { entries: [], next: null, previous: null, end: 0, isWhole: true };
    const end = text.first + text.bytes.byteLength;
    const isWanted = filterOf(query);
    const found: TimelineEntry[] = [];
    let next: number | null = null;
    let previous: number | null = null;
    for await (const entry of this.#inTurns(text)) {
      if (entry.offset >= before) break;
      if (entry.offset < (from ?? 0) || !isWanted(entry)) continue;
      if (from !== undefined && found.length === limit) {
        next = entry.offset;
        break;
      }
      found.push(entry);
      if (found.length > limit) found.shift();
    }
    const [first] = found;
    if (from === undefined && first !== undefined && found.length === limit) previous = first.offset;
    return { entries: found, next, previous, end, isWhole: text.isWhole };
  }

  async *follow(
    key: ThreadKeyInput,
    { from, signal, ...filter }: TimelineFilter & { readonly from?: number; readonly signal?: AbortSignal } = {},
  ): AsyncIterable<FollowedEntry> {
    const { owner, recorder } = await this.#of(key);
    const until = signal === undefined ? this.#parts.ending : AbortSignal.any([signal, this.#parts.ending]);
    const isWanted = filterOf(filter);
    const { timelines } = recorder;
    let next = from ?? (await timelines.end(owner));
    let wake: () => void = () => undefined;
    let isNew = true;
    const stop = recorder.onAppended(owner, () => {
      isNew = true;
      wake();
    });
    try {
      while (!until.aborted) {
        isNew = false;
        const end = await timelines.end(owner);
        if (end !== 0 && end !== next) {
          const text = await timelines.read(owner, next);
          // The log begins later than where this reader is: it was shortened, or the thread was purged.
          if (text !== null && next !== 0 && (text.first > next || end < next)) yield { kind: "gap" };
          if (text !== null) {
            for await (const entry of this.#inTurns(text))
              if (entry.offset >= next && isWanted(entry)) yield { kind: "entry", entry };
            next = text.first + text.bytes.byteLength;
          }
        }
        if (!isNew) await this.#quiet(until, (resolve) => (wake = resolve));
      }
    } finally {
      stop();
    }
  }

  note(...[key, note]: Parameters<FleetTimeline["note"]>): void {
    const [user, thread] = [parseUser(key.user), parseThreadId(key.thread)];
    this.#parts.recorder?.note(user, thread, { sandboxId: null, generation: null }, note);
  }

  /** Between some of a long log's entries this process does other work. */
  async *#inTurns(text: TimelineText): AsyncGenerator<TimelineEntry> {
    let count = 0;
    for (const entry of entriesOf(text)) {
      count += 1;
      if (count % AT_ONCE === 0) await sleep(this.#parts.world, 0);
      yield entry;
    }
  }

  /** Until this instance has appended something, or it is time to look for what others have. */
  async #quiet(until: AbortSignal, onWake: (wake: () => void) => void): Promise<void> {
    const woken = new AbortController();
    onWake(() => woken.abort());
    await sleep(this.#parts.world, LOOK_MS, AbortSignal.any([until, woken.signal]), { background: true }).catch(
      () => undefined,
    );
  }

  async #of({ user, thread }: ThreadKeyInput): Promise<{ owner: WorkspaceOwner; recorder: TimelineRecorder }> {
    const { recorder, backend } = this.#parts;
    const owner = { user: parseUser(user), thread: parseThreadId(thread) };
    await this.#locate(owner);
    if (recorder !== null) return { owner, recorder };
    const facts = { backend: backend.name, capability: "timeline", neededBy: "reading a timeline" };
    throw new SandlotError("capability_missing", facts);
  }

  async #locate({ user, thread }: { readonly user: UserId; readonly thread: ThreadId }): Promise<void> {
    const { store, backend, settings } = this.#parts;
    if (!store.isShared) return;
    const place = await store.locate({ user, thread, engines: [backend.engineId] });
    throwIfElsewhere(place.elsewhere, thread, settings.sessionLifetimeMs);
  }
}

function filterOf({ kinds, since, until }: TimelineFilter): (entry: TimelineEntry) => boolean {
  const wanted = kinds === undefined ? null : new Set<string>(kinds satisfies readonly TimelineKind[]);
  return ({ kind, at }) =>
    (wanted === null || wanted.has(kind)) &&
    (since === undefined || at >= since) &&
    (until === undefined || at <= until);
}
