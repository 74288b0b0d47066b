/**
 * The runs that an MCP server keeps between requests: each has its own lease, shell and knowledge of files. A run has
 * an owner, by which runs are ended together, and a name within it.
 *
 * Invariants
 * - At most `RUNS_MAX` are kept, and `RUNS_PER_THREAD_MAX` of one thread; the least recently used is dropped first,
 *   never one in use. A client that creates many runs in a thread drops runs of that thread, not of others.
 * - Dropping loses only the shell's directory and what was read: the same name begins again at the workspace.
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
  /** Keeps it from being dropped until `done` is called. */
  busy(): { done(): void };
}

/** The owner of a run. */
export interface RunOwner {
  readonly user: string;
  readonly thread: string;
  /** A session or a name that the client chose for all its requests; empty without one. */
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

/** The name that a client chose; `undefined` without one. */
export function runNameFrom(value: unknown, field: string): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "string" && value.length > 0 && value.length <= NAME_MAX_CHARS) return value;
  throw new SandlotError("invalid_request", { field, problem: `it is a text of 1 to ${NAME_MAX_CHARS} characters` });
}
