/**
 * Notes which files changed: what a new checkpoint differs in from the one before it. One look at a time, beside
 * everything else; a thread that takes more checkpoints meanwhile has its looks left out, oldest first, and counted by
 * their checkpoints' own entries.
 */

import type { CheckpointDiff, FleetEvent, ThreadId, UserId } from "@sandlot/contract";
import type { FleetCheckpoints } from "../../fleet.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import type { TimelineRecorder } from "./timeline-recorder.ts";

interface Wanted {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly checkpoint: string;
}

const WANTED_MAX = 100;
const NAMES_MAX = 10;
const TIMEOUT_MS = 30_000;

export class FileChanges {
  readonly #checkpoints: Pick<FleetCheckpoints, "find" | "diff">;
  readonly #recorder: TimelineRecorder;
  readonly #bus: EventBus;
  readonly #ending: AbortSignal;
  readonly #unfollow: () => void;
  #wanted: Wanted[] = [];
  #looking: Promise<void> | null = null;

  constructor(parts: {
    checkpoints: Pick<FleetCheckpoints, "find" | "diff">;
    recorder: TimelineRecorder;
    bus: EventBus;
    ending: AbortSignal;
  }) {
    this.#checkpoints = parts.checkpoints;
    this.#recorder = parts.recorder;
    this.#bus = parts.bus;
    this.#ending = parts.ending;
    this.#unfollow = parts.bus.on((event) => this.#heard(event), "checkpoint-taken");
  }

  /** Resolves when what was wanted is noted. */
  async close(): Promise<void> {
    this.#unfollow();
    await this.#looking;
  }

  #heard(event: FleetEvent): void {
    if (event.type !== "checkpoint-taken" || event.cause === "restored") return;
    const { user, thread, checkpoint } = event;
    this.#wanted.push({ user, thread, checkpoint });
    if (this.#wanted.length > WANTED_MAX) this.#wanted = this.#wanted.slice(-WANTED_MAX);
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
  }

  async #look(): Promise<void> {
    for (let next = this.#wanted.shift(); next !== undefined; next = this.#wanted.shift()) {
      if (this.#ending.aborted) return;
      await this.#note(next).catch((error: unknown) => {
        // Closing ends it; a thread that was purged or undone meanwhile has no such checkpoint any more.
        if (!this.#ending.aborted) this.#bus.report("timeline: files changed", problemOf(error));
      });
    }
  }

  async #note({ user, thread, checkpoint }: Wanted): Promise<void> {
    const key = { user, thread };
    const limits = { signal: this.#ending, timeoutMs: TIMEOUT_MS };
    const { parent, generation } = await this.#checkpoints.find(key, checkpoint);
    const diff = await this.#checkpoints.diff(key, { from: parent, to: checkpoint, maxChanges: 200, ...limits });
    const { added, changed, removed } = diff.counts;
    if (added + changed + removed === 0) return;
    const facts = { checkpoint, added, changed, removed, names: namesOf(diff) };
    this.#recorder.note(user, thread, { sandboxId: null, generation }, { kind: "files", what: "changed", facts });
  }
}

/** Files before the directories that they made new. */
function namesOf({ changes }: CheckpointDiff): readonly string[] {
  const files = changes.filter(({ kind }) => kind !== "directory");
  return [...files, ...changes.filter(({ kind }) => kind === "directory")].slice(0, NAMES_MAX).map(({ path }) => path);
}
