/**
 * A watch of the AIO API: changes are numbered and kept for a while, so that a request with a number gets what came
 * after it.
 *
 * Changes of one path within the watch's debounce time are one event. A rename is reported as `remove` and `create`,
 * and a change of mode as `write`: the kernel's watch does not report more.
 */

import { lstatSync, type Stats } from "node:fs";
import type { FileChange } from "@sandlot/contract";
import { type Timer, timer, wallMs } from "../clock.ts";
import { TreeWatch } from "../files/tree-watch.ts";
import { isLeftOut, matchesAny, relativeTo } from "./file-info.ts";

export const EVENT_TYPES = ["create", "write", "remove", "rename", "chmod"] as const;
type EventType = (typeof EVENT_TYPES)[number];

export interface WatchParams {
  readonly path: string;
  readonly recursive: boolean;
  /** Names or patterns: matches, and everything below them, are not reported. */
  readonly exclude: readonly string[];
  readonly debounceMs: number;
  /** Empty: everything. */
  readonly include: readonly string[];
}

export interface FileEvent {
  readonly seq: number;
  readonly watcher_id: string;
  readonly type: EventType;
  readonly path: string;
  readonly relative_path: string;
  readonly old_path: string | null;
  readonly is_dir: boolean;
  /** Seconds since 1970, as everywhere in this API. */
  readonly timestamp: number;
  readonly mtime: number | null;
  readonly size: number | null;
  readonly inode: number | null;
}

/** Events that are kept; a request for older ones gets an overflow. */
const KEPT_MAX = 1_000;
const TYPES: Readonly<Partial<Record<FileChange["type"], EventType>>> = {
  created: "create",
  modified: "write",
  removed: "remove",
};

export class FileWatch {
  readonly id: string;
  readonly params: WatchParams;
  readonly createdAt = wallMs() / 1_000;
  /** Callers that set it up, and have not ended it. */
  userCount = 1;
  subscriberCount = 0;
  readonly #tree: TreeWatch;
  readonly #waiting = new Map<string, Timer & { type: EventType }>();
  readonly #listeners = new Set<() => void>();
  #events: FileEvent[] = [];
  #latest = 0;
  /** Events up to this number are incomplete. */
  #lostUntil = 0;
  #isOver = false;

  /** Throws the kernel's error about the path. */
  constructor(id: string, params: WatchParams) {
    this.id = id;
    this.params = params;
    this.#tree = new TreeWatch(
      params.path,
      params.recursive,
      (change) => this.#hear(change),
      () => this.#notify(),
    );
  }

  get latest(): number {
    return this.#latest;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The events after `cursor`; `overflow` when some were dropped. */
  since(cursor: number): { readonly events: readonly FileEvent[]; readonly overflow: boolean } {
    const events = this.#events.filter(({ seq }) => seq > cursor);
    return { events, overflow: cursor < this.#lostUntil };
  }

  /** Resolves at the next event, at the watch's end, or after the time. */
  news(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        late.cancel();
        this.#listeners.delete(done);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const late = timer(ms, done);
      this.#listeners.add(done);
      signal?.addEventListener("abort", done, { once: true });
      if (this.#isOver || signal?.aborted === true) done();
    });
  }

  close(): void {
    this.#isOver = true;
    this.#tree.close();
    for (const waiting of this.#waiting.values()) waiting.cancel();
    this.#waiting.clear();
    this.#notify();
  }

  #hear({ type, path }: FileChange): void {
    if (type === "overflow") {
      this.#lostUntil = ++this.#latest;
      this.#notify();
      return;
    }
    const told = TYPES[type];
    if (told === undefined || this.#isLeftOut(path)) return;
    const waiting = this.#waiting.get(path);
    waiting?.cancel();
    // A new file stays new when it is written to.
    const kept = waiting?.type === "create" && told === "write" ? "create" : told;
    const late = timer(this.params.debounceMs, () => {
      this.#waiting.delete(path);
      this.#add(path, kept);
    });
    this.#waiting.set(path, { type: kept, cancel: () => late.cancel() });
  }

  #add(path: string, type: EventType): void {
    const found = type === "remove" ? undefined : statOf(path);
    this.#events.push({
      ...{ seq: ++this.#latest, watcher_id: this.id, type, path },
      relative_path: path === this.params.path ? "." : relativeTo(this.params.path, path),
      old_path: null,
      is_dir: found?.isDirectory() ?? false,
      timestamp: wallMs() / 1_000,
      mtime: found === undefined ? null : found.mtimeMs / 1_000,
      size: found?.size ?? null,
      inode: found?.ino ?? null,
    });
    const surplus = this.#events.length - KEPT_MAX;
    if (surplus > 0) this.#lostUntil = this.#events.splice(0, surplus).at(-1)?.seq ?? this.#lostUntil;
    this.#notify();
  }

  #isLeftOut(path: string): boolean {
    const { path: root, exclude, include } = this.params;
    return isLeftOut(exclude, root, path) || (include.length > 0 && !matchesAny(include, root, path));
  }

  #notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

export function statOf(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
