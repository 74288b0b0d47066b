/**
 * The runs that an MCP server keeps from one request to the next: each has a lease, a shell and knowledge of files of its own.
 * They have an owner (whoever may end them together) and, within it, a name.
 *
 * Invariants
 * - At most `RUNS_MAX` are kept, and `RUNS_PER_THREAD_MAX` of one thread; the one that was used longest ago goes first, never one
 *   that is in use. Who makes many runs in a thread forgets runs of that thread, not those of others.
 * - What is forgotten is only where a shell stood and what was read: the same name begins again at the workspace.
 */

import type { ToolBox } from "@sandlot/client/tools";
import { SandlotError } from "@sandlot/contract";
import { CallsUnderWay } from "./calls-under-way.ts";

const RUNS_MAX = 1_000;
const RUNS_PER_THREAD_MAX = 100;
const NAME_MAX_CHARS = 128;

export interface KeptRun {
  readonly toolBox: ToolBox;
  readonly calls: CallsUnderWay;
  /** Keeps it from being forgotten until it is told that this use is over. */
  busy(): { done(): void };
}

/** What a run belongs to. */
export interface RunOwner {
  readonly user: string;
  readonly thread: string;
  /** A session or a name that the client has chosen for all it asks; empty for whoever chose none. */
  readonly client: string;
}

interface Entry extends KeptRun {
  readonly thread: string;
  readonly owner: string;
  usesUnderWay: number;
}

export class Runs {
  readonly #open: (owner: RunOwner) => ToolBox;
  readonly #kept = new Map<string, Entry>();

  constructor(open: (owner: RunOwner) => ToolBox) {
    this.#open = open;
  }

  /** The run of that name, or the owner's own. */
  of(owner: RunOwner, name = ""): KeptRun {
    const key = JSON.stringify([keyOf(owner), name]);
    const kept = this.#kept.get(key) ?? this.#entry(owner);
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    this.#forgetOldest(RUNS_PER_THREAD_MAX, ({ thread }) => thread === kept.thread);
    this.#forgetOldest(RUNS_MAX, () => true);
    return kept;
  }

  /** Ends every run of that owner. */
  async end(owner: RunOwner): Promise<void> {
    await this.#endWhere((entry) => entry.owner === keyOf(owner));
  }

  async close(): Promise<void> {
    await this.#endWhere(() => true);
  }

  #entry(owner: RunOwner): Entry {
    const entry: Entry = {
      toolBox: this.#open(owner),
      calls: new CallsUnderWay(),
      thread: JSON.stringify([owner.user, owner.thread]),
      owner: keyOf(owner),
      usesUnderWay: 0,
      busy() {
        entry.usesUnderWay += 1;
        return {
          done: () => {
            entry.usesUnderWay -= 1;
          },
        };
      },
    };
    return entry;
  }

  async #endWhere(isMeant: (entry: Entry) => boolean): Promise<void> {
    const meant = [...this.#kept].filter(([, entry]) => isMeant(entry));
    for (const [key] of meant) this.#kept.delete(key);
    await Promise.all(meant.map(([, { toolBox }]) => toolBox.end()));
  }

  #forgetOldest(max: number, isCounted: (entry: Entry) => boolean): void {
    if (this.#kept.size <= max) return;
    const counted = [...this.#kept].filter(([, entry]) => isCounted(entry));
    if (counted.length <= max) return;
    const oldest = counted.slice(0, -1).find(([, { usesUnderWay }]) => usesUnderWay === 0);
    if (oldest === undefined) return;
    this.#kept.delete(oldest[0]);
    void oldest[1].toolBox.end();
  }
}

function keyOf({ user, thread, client }: RunOwner): string {
  return JSON.stringify([user, thread, client]);
}

/** A name that a client has chosen; `undefined` where it chose none. */
export function runNameFrom(value: unknown, field: string): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "string" && value.length > 0 && value.length <= NAME_MAX_CHARS) return value;
  throw new SandlotError("invalid_request", { field, problem: `it is a text of 1 to ${NAME_MAX_CHARS} characters` });
}
