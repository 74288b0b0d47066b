/**
 * The weights that events are drawn with. Each run changes them first, so that in some runs crashes are common, in
 * others pauses, and in others almost nothing but ordinary use happens.
 */

import type { Random } from "../schedule/random.ts";

/** How likely each event is, before a run changes the weights. */
const WEIGHTS = {
  acquire: 34,
  acquireEverywhere: 5,
  acquireTogether: 4,
  warm: 3,
  write: 26,
  writeStale: 3,
  read: 10,
  release: 24,
  releaseTwice: 5,
  look: 3,
  destroyPlain: 3,
  destroyForced: 3,
  purgePlain: 2,
  purgeForced: 2,
  destroyWhileAcquiring: 2,
  remoteRenew: 10,
  remoteRelease: 4,
  remoteGuess: 2,
  crash: 5,
  busy: 5,
  idle: 4,
  kill: 3,
  pauseLong: 3,
  pauseShort: 3,
  close: 1.5,
  closeDestroy: 1.5,
  clockStep: 3,
  sleep: 1,
  freeze: 1,
  outage: 3,
  empty: 1,
} as const;

type Kind = keyof typeof WEIGHTS;

export class EventWeights {
  readonly #random: Random;
  readonly #shares: readonly { readonly kind: Kind; readonly upTo: number }[];

  constructor(random: Random) {
    this.#random = random;
    const weights = Object.entries(WEIGHTS).map(([kind, weight]) => {
      const factor = random.pick([0.2, 1, 1, 1, 2.5]);
      return { kind: kind as Kind, weight: weight * factor };
    });
    const total = weights.reduce((sum, { weight }) => sum + weight, 0);
    let upTo = 0;
    this.#shares = weights.map(({ kind, weight }) => {
      upTo += weight / total;
      return { kind, upTo };
    });
  }

  draw(): Kind {
    const at = this.#random.unit();
    return this.#shares.find(({ upTo }) => at < upTo)?.kind ?? "acquire";
  }
}
