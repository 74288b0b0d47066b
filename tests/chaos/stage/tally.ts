/** The faults, the times until each was usable again, and the violations. */

export class Tally {
  readonly violations: string[] = [];
  readonly usableMs = new Map<string, number[]>();
  /** Killed fleets, by their stage. */
  readonly kills: Record<KillStage, number> = { create: 0, bind: 0, ready: 0, lease: 0, release: 0, stop: 0 };
  settledCount = 0;
  readonly refusals = new Map<string, number>();

  violated(what: string): void {
    this.violations.push(what);
    console.log(`VIOLATION ${what}`);
  }

  usable(fault: string, ms: number): void {
    this.usableMs.set(fault, [...(this.usableMs.get(fault) ?? []), ms]);
  }

  refused(code: string): void {
    this.refusals.set(code, (this.refusals.get(code) ?? 0) + 1);
  }

  get deedCount(): number {
    return [...this.usableMs.values()].reduce((sum, times) => sum + times.length, 0);
  }

  table(): string {
    const rows = [...this.usableMs].map(([fault, times]) => {
      const sorted = times.toSorted((a, b) => a - b);
      const at = (share: number) => `${Math.round(sorted[Math.floor((sorted.length - 1) * share)] ?? 0)} ms`;
      return `  ${fault.padEnd(WIDE)} ${String(times.length).padStart(4)} times   usable after p50 ${at(0.5)}, p95 ${at(0.95)}, max ${at(1)}`;
    });
    const told = [...this.refusals].map(([code, count]) => `${code} ${count}`).join(", ");
    return [...rows, `  acquires that were refused meanwhile: ${told || "none"}`].join("\n");
  }
}

export const KILL_STAGES = ["create", "bind", "ready", "lease", "release", "stop"] as const;
export type KillStage = (typeof KILL_STAGES)[number];

const WIDE = 44;
