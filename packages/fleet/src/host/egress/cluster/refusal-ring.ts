/**
 * The latest refusals of one proxy for many sandboxes, for gateways to fetch.
 *
 * Invariants
 * - The ring has a fixed size. A reader that comes too late learns how many it has missed.
 * - Numbers only grow within one run of the proxy (`epoch`); after a restart a reader begins anew.
 */

import type { Refusal } from "../rules/decide.ts";

export interface KeptRefusal {
  readonly seq: number;
  readonly at: number;
  readonly sandboxId: string;
  readonly refusal: Refusal;
  /** Refusals of the same sandbox that were counted only, since its last one here. */
  readonly untold: number;
}

export interface RefusalPage {
  readonly epoch: string;
  /** Where the next page begins. */
  readonly next: number;
  /** How many between the asked number and the first of this page are gone. */
  readonly lost: number;
  readonly refusals: readonly KeptRefusal[];
}

/** A page of this many stays far below the limit of a response. */
const PAGE_MAX = 256;
const HOST_MAX_LENGTH = 256;
const ADDRESSES_MAX = 8;
const TEXT_MAX_LENGTH = 512;

export class RefusalRing {
  readonly epoch: string;
  readonly #max: number;
  readonly #kept: KeptRefusal[] = [];
  #next = 0;

  constructor(epoch: string, max: number) {
    this.epoch = epoch;
    this.#max = max;
  }

  add(at: number, sandboxId: string, refusal: Refusal, untold: number): void {
    this.#kept.push({ seq: this.#next++, at, sandboxId, refusal: shortened(refusal), untold });
    if (this.#kept.length > this.#max) this.#kept.shift();
  }

  /** From a number of this epoch on; from the oldest for another epoch. */
  page(epoch: string | null, from: number): RefusalPage {
    const oldest = this.#next - this.#kept.length;
    const begin = epoch === this.epoch ? Math.min(Math.max(from, oldest), this.#next) : oldest;
    const lost = epoch === this.epoch ? Math.max(0, oldest - from) : oldest;
    const refusals = this.#kept.slice(begin - oldest, begin - oldest + PAGE_MAX);
    return { epoch: this.epoch, next: begin + refusals.length, lost, refusals };
  }
}

/** A sandbox chooses most of these texts. */
function shortened({ host, port, rule, addresses, because }: Refusal): Refusal {
  return {
    host: host.slice(0, HOST_MAX_LENGTH),
    port,
    rule,
    addresses: addresses.slice(0, ADDRESSES_MAX),
    because: because.slice(0, TEXT_MAX_LENGTH),
  };
}
