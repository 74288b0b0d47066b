/**
 * Reports that a sandbox ran into its memory or process limit, from any of its processes: a command, a session, a
 * terminal, or a background process. The kernel counts; version 1 has no notification, so the counters are polled, and
 * read at once when a command has ended.
 *
 * Invariants
 * - Hits from before this process knew the sandbox are not reported.
 * - Each kind is reported once for all hits since its last report, and at most every `TELL_EVERY_MS`: a bomb is refused
 *   thousands of times a second. No hit is lost by that.
 */

import type { LimitKind } from "@sandlot/contract";
import type { Timer, World } from "../../world/world.ts";
import { explainHit, type LimitGroup, type LimitHits } from "./limits.ts";

/** Two small kernel files per limited sandbox: a few microseconds. */
const LOOK_EVERY_MS = 1_000;
const TELL_EVERY_MS = 1_000;

type Tell = (limit: LimitKind, because: string) => void;

interface Watched {
  readonly group: LimitGroup;
  readonly tell: Tell;
  /** The counts at the last report. */
  readonly told: Record<keyof LimitHits, number>;
  readonly toldAtMs: Partial<Record<LimitKind, number>>;
}

export class LimitWatch {
  readonly #world: World;
  readonly #watched = new Map<string, Watched>();
  #timer: Timer | null = null;

  constructor(world: World) {
    this.#world = world;
  }

  watch(group: LimitGroup, tell: Tell): void {
    if (this.#watched.has(group.name)) return;
    const { oomKills, pidsRefusals } = group.hits();
    const told = { oomKills: oomKills ?? 0, pidsRefusals: pidsRefusals ?? 0 };
    this.#watched.set(group.name, { group, tell, told, toldAtMs: {} });
    this.#schedule();
  }

  forget(name: string): void {
    this.#watched.delete(name);
  }

  /** Checks one sandbox now, or uses counts that were just read there. An unwatched sandbox is ignored. */
  look(name: string, seen?: LimitHits): void {
    const watched = this.#watched.get(name);
    if (watched !== undefined) this.#look(watched, seen);
  }

  /** For a limit without counters: a disk budget. Hits within a second are reported once. */
  note(name: string, limit: LimitKind, because: string): void {
    const watched = this.#watched.get(name);
    if (watched !== undefined && this.#isTime(watched, limit)) this.#tell(watched, limit, because);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#watched.clear();
  }

  #schedule(): void {
    if (this.#timer !== null || ![...this.#watched.values()].some(({ group }) => group.isCounted)) return;
    const next = () => {
      this.#timer = null;
      for (const watched of [...this.#watched.values()]) this.#look(watched);
      this.#schedule();
    };
    this.#timer = this.#world.timer(LOOK_EVERY_MS, next, { background: true });
  }

  #look(watched: Watched, seen?: LimitHits): void {
    const { group } = watched;
    if (!group.isCounted) return;
    const { oomKills, pidsRefusals } = seen ?? group.hits();
    // The group is gone, and the sandbox with it.
    if (oomKills === null && pidsRefusals === null) this.forget(group.name);
    if (oomKills !== null) this.#compare(watched, "oomKills", oomKills, "memory");
    if (pidsRefusals !== null) this.#compare(watched, "pidsRefusals", pidsRefusals, "pids");
  }

  #compare(watched: Watched, counter: keyof LimitHits, now: number, limit: "memory" | "pids"): void {
    if (now <= watched.told[counter] || !this.#isTime(watched, limit)) return;
    watched.told[counter] = now;
    this.#tell(watched, limit, explainHit(watched.group, limit));
  }

  #isTime({ toldAtMs }: Watched, limit: LimitKind): boolean {
    const lastMs = toldAtMs[limit];
    return lastMs === undefined || this.#world.monotonicMs() - lastMs >= TELL_EVERY_MS;
  }

  #tell({ tell, toldAtMs }: Watched, limit: LimitKind, because: string): void {
    toldAtMs[limit] = this.#world.monotonicMs();
    tell(limit, because);
  }
}
