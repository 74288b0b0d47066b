/** The promises of destroy: `stopping` says that the end will come, so at rest it must have come. */

import type { Findings } from "./findings.ts";
import type { Asked } from "./lease-checks.ts";
import { ownerOf, type Truth } from "./truth.ts";

interface EndPromise {
  readonly asked: Asked;
  readonly purge: boolean;
  /** Acknowledged writes that the purge must have removed. */
  readonly tokens: readonly string[];
}

export class PromiseChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  readonly #promises: EndPromise[] = [];

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  /** A destroy returned. */
  answered(asked: Asked, outcome: string, purge: boolean): void {
    if (outcome !== "stopping" || asked.owner === null) return;
    const { acknowledged } = this.#truth.thread(asked.owner);
    const tokens = purge ? [...acknowledged].filter(([, at]) => at < asked.at).map(([token]) => token) : [];
    this.#promises.push({ asked, purge, tokens });
  }

  /** Faults have stopped, and time has passed. */
  atRest(): void {
    for (const promise of this.#promises) {
      const { asked, purge } = promise;
      // A store lost since has forgotten the request.
      if (this.#truth.emptiedAt >= Math.min(asked.at, asked.instance.beatConfirmedSentAt)) continue;
      const left = [...this.#records(promise), ...this.#tokens(promise)];
      this.#findings.check(
        "promised-end-comes",
        left.length === 0,
        () =>
          `${asked.instance.name} promised at ${asked.at} to end ${asked.owner}${purge ? " with purge" : ""}: ${left}`,
      );
    }
  }

  /** Records of the thread at the time of the request. */
  #records({ asked }: EndPromise): string[] {
    const { tables, ownedSince } = this.#truth;
    return tables
      .records()
      .filter((record) => ownerOf(record) === asked.owner)
      .filter(({ sandboxId }) => (ownedSince.get(sandboxId) ?? asked.at) < asked.at)
      .map(({ sandboxId, state }) => `${sandboxId} is ${state}`);
  }

  #tokens({ asked, tokens }: EndPromise): string[] {
    const { ledger } = this.#truth;
    const owner = asked.owner ?? "";
    // A create that landed late has used the workspace since. The purge spares its writes and sets them aside for an
    // operator.
    if ((ledger.fences.get(owner) ?? 0) > this.#truth.thread(owner).latestLeased) return [];
    const home = ledger.homes.get(owner)?.tokens;
    return tokens.filter((token) => home?.has(token) === true).map((token) => `${token} is at home`);
  }
}
