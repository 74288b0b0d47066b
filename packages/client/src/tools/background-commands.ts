/**
 * Commands of a run that outlast the call that started them. A caller with a limited wait, such as an MCP client, gets
 * an id instead of a result, and requests the result with a later call.
 *
 * Invariants
 * - Cancelling a call while it waits for its own command ends that command. A command in the background ends by itself,
 *   by `stop`, by its time limit or with its run; cancelling a later call that waits for it does not end it.
 * - At most `KEPT_MAX` commands are kept. A running one is never dropped.
 */

import { later, wallMs } from "../wire/clock.ts";
import type { LiveOutput } from "./live-output.ts";
import type { ShellResult } from "./shell.ts";
import { unlessAborted } from "./waiting.ts";

/** An unrequested result is dropped when this many newer commands went into the background. */
const KEPT_MAX = 8;

export interface BackgroundCommand {
  readonly id: string;
  readonly startedAtMs: number;
  /** The working directory before the command. */
  readonly cwdBefore: string;
}

export type CommandOutcome =
  | { readonly type: "ended"; readonly result: ShellResult; readonly cwdBefore: string }
  | { readonly type: "running"; readonly id: string; readonly forMs: number; readonly live: LiveOutput | undefined };

interface Entry extends BackgroundCommand {
  readonly live: LiveOutput | undefined;
  readonly result: Promise<ShellResult>;
  readonly stopping: AbortController;
  hasEnded: boolean;
}

export interface CommandStart {
  readonly cwdBefore: string;
  /** Of the call. */
  readonly signal: AbortSignal | undefined;
  /** How long the call waits; absent: until the end. */
  readonly replyWithinMs: number | undefined;
  readonly live: LiveOutput | undefined;
  start(signal: AbortSignal): Promise<ShellResult>;
}

export class BackgroundCommands {
  readonly #entries = new Map<string, Entry>();
  readonly #ending: AbortSignal;
  #count = 0;

  /** `ending` fires when the run is over, and ends every command. */
  constructor(ending: AbortSignal) {
    this.#ending = ending;
  }

  /** The oldest running one. */
  running(): BackgroundCommand | undefined {
    return [...this.#entries.values()].find(({ hasEnded }) => !hasEnded);
  }

  /** The live output of a running command. */
  liveOf(id: string): LiveOutput | undefined {
    return this.#entries.get(id)?.live;
  }

  async run({ cwdBefore, signal, replyWithinMs, live, start }: CommandStart): Promise<CommandOutcome> {
    const stopping = new AbortController();
    const startedAtMs = wallMs();
    const cancel = () => stopping.abort(signal?.reason);
    if (signal?.aborted === true) cancel();
    else signal?.addEventListener("abort", cancel, { once: true });
    try {
      const result = start(AbortSignal.any([stopping.signal, this.#ending]));
      if (replyWithinMs === undefined || (await endsWithin(result, replyWithinMs)))
        return { type: "ended", result: await result, cwdBefore };
      this.#count += 1;
      const entry: Entry = {
        ...{ id: `command-${this.#count}`, startedAtMs, cwdBefore, result, stopping, live },
        hasEnded: false,
      };
      this.#keep(entry);
      return { type: "running", id: entry.id, forMs: wallMs() - startedAtMs, live };
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Waits for a command. Its result is returned once. `null`: there is no such command. */
  async wait(id: string, withinMs: number, signal: AbortSignal | undefined): Promise<CommandOutcome | null> {
    const entry = this.#entries.get(id);
    if (entry === undefined) return null;
    const ended = await unlessAborted(endsWithin(entry.result, withinMs), signal);
    if (!ended) return { type: "running", id, forMs: wallMs() - entry.startedAtMs, live: entry.live };
    this.#entries.delete(id);
    return { type: "ended", result: await entry.result, cwdBefore: entry.cwdBefore };
  }

  /** Ends a command and all it started. `false`: no such command runs. */
  async stop(id: string, signal: AbortSignal | undefined): Promise<boolean> {
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.hasEnded) return false;
    const reason = new Error(`${id} was stopped`);
    entry.stopping.abort(reason);
    const rejected = await unlessAborted(failureOf(entry.result), signal);
    this.#entries.delete(id);
    if (rejected !== null && rejected.error !== reason) throw rejected.error;
    return true;
  }

  #keep(entry: Entry): void {
    this.#entries.set(entry.id, entry);
    void failureOf(entry.result).then(() => {
      entry.hasEnded = true;
    });
    for (const [id, { hasEnded }] of this.#entries) {
      if (this.#entries.size <= KEPT_MAX) return;
      if (hasEnded) this.#entries.delete(id);
    }
  }
}

/** Whether the promise settles, either way, in time. */
async function endsWithin(promise: Promise<unknown>, withinMs: number): Promise<boolean> {
  let cancel = () => {};
  const late = new Promise<false>((resolve) => {
    cancel = later(withinMs, () => resolve(false));
  });
  try {
    return await Promise.race([failureOf(promise).then(() => true), late]);
  } finally {
    cancel();
  }
}

/** The rejection of a promise; `null` when it is fulfilled. */
function failureOf(promise: Promise<unknown>): Promise<{ readonly error: unknown } | null> {
  return promise.then(
    () => null,
    (error: unknown) => ({ error }),
  );
}
