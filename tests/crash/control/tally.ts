/** The events of a run: counts for the table at the end, and the facts for the last checks. */

import type { Random } from "../../simulation/schedule/random.ts";
import type { Note } from "../wire.ts";
import { STATES, type StateHit } from "./states.ts";

/** `stopped long`: beyond a session's lifetime. */
export type ServerFault = "killed" | "stopped" | "stopped long";

export class Tally {
  readonly violations: string[] = [];
  /** By thread: every acknowledged write. */
  readonly acknowledged = new Map<string, Set<string>>();
  readonly errors = new Map<string, number>();
  readonly hits: Readonly<Record<"kills" | "stops", Record<StateHit, number>>> = { kills: none(), stops: none() };
  kills = 0;
  stops = 0;
  longStops = 0;
  readonly serverFaults: Record<ServerFault, number> = { killed: 0, stopped: 0, "stopped long": 0 };
  acquires = 0;
  steps = 0;
  worstStepMs = 0;
  writes = 0;
  /** Workspaces of callers without a thread whose stop was lost with an epoch. */
  readonly leftByLostEpochs: string[] = [];

  hit(action: "kills" | "stops", states: Iterable<StateHit>): void {
    this[action] += 1;
    for (const state of states) this.hits[action][state] += 1;
  }

  stepped(count: number, worstMs: number): void {
    this.steps += count;
    this.worstStepMs = Math.max(this.worstStepMs, worstMs);
  }

  violated(what: string): void {
    // One cause may show many times; the first few say enough.
    if (this.violations.length < 50) this.violations.push(what);
  }

  acknowledge({ owner, token }: Extract<Note, { note: "ack" }>): void {
    this.writes += 1;
    const tokens = this.acknowledged.get(owner) ?? new Set();
    this.acknowledged.set(owner, tokens.add(token));
  }

  settled(kind: string, error: string | null): void {
    if (kind === "acquire") this.acquires += 1;
    if (error === null) return;
    const name = `${kind}: ${error}`;
    this.errors.set(name, (this.errors.get(name) ?? 0) + 1);
  }

  /** A state that kills have hit too rarely: the rarest one half of the time, else any below the average. */
  scarce(random: Random): StateHit {
    const hits = this.hits.kills;
    const rarest = Math.min(...STATES.map((state) => hits[state]));
    const mean = STATES.reduce((sum, state) => sum + hits[state], 0) / STATES.length;
    const most = random.chance(0.5) ? rarest : mean;
    return random.pick(STATES.filter((state) => hits[state] <= most));
  }

  progress(): string {
    const { killed, ...stopped } = this.serverFaults;
    const stops = Object.values(stopped).reduce((sum, count) => sum + count, 0);
    const server = killed + stops === 0 ? "" : `, server killed ${killed} and stopped ${stops} times`;
    return `${this.kills + this.stops} cycles, ${this.kills} kills, ${this.stops} stops${server}`;
  }

  table(): string {
    const row = (...cells: readonly (string | number)[]) =>
      cells.map((cell, index) => (index === 0 ? String(cell).padEnd(10) : String(cell).padStart(7))).join("");
    const rows = STATES.map((state) => row(state, this.hits.kills[state], this.hits.stops[state]));
    return [row("state", "kills", "stops"), ...rows].join("\n");
  }
}

function none(): Record<StateHit, number> {
  return { creating: 0, binding: 0, leased: 0, parked: 0, stopping: 0, none: 0 };
}
