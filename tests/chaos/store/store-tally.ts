/** The faults of a store's chaos, by kind, and how long it took until every instance was usable again. */

import type { Fault } from "./faults.ts";

interface Suffered {
  readonly lastedMs: number;
  readonly usableMs: number;
  readonly isNewEpoch: boolean;
}

export class StoreTally {
  readonly #faults = new Map<Fault, Suffered[]>();

  suffered(fault: Fault, one: Suffered): void {
    this.#faults.set(fault, [...(this.#faults.get(fault) ?? []), one]);
    console.log(
      `  ${fault}: ${Math.round(one.lastedMs)} ms, every instance leased ${Math.round(one.usableMs)} ms later` +
        `${one.isNewEpoch ? ", new epoch" : ""}`,
    );
  }

  get epochsChanged(): number {
    return [...this.#faults.values()].flat().filter(({ isNewEpoch }) => isNewEpoch).length;
  }

  table(): string {
    const rows = [...this.#faults].map(([fault, all]) => {
      const usable = all.map(({ usableMs }) => usableMs).sort((a, b) => a - b);
      const at = (share: number) => `${Math.round(usable[Math.floor((usable.length - 1) * share)] ?? 0)} ms`;
      const epochs = all.filter(({ isNewEpoch }) => isNewEpoch).length;
      return `  ${fault.padEnd(22)} ${String(all.length).padStart(4)} times   usable after p50 ${at(0.5)}, max ${at(1)}   new epochs ${epochs}`;
    });
    return rows.join("\n");
  }
}
