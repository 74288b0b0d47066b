/**
 * Who may ask: whoever knows this sandbox's id, its present generation and its token.
 *
 * Every part is compared in full, whatever the others said, so the time of a refusal tells nothing. The comparison is
 * written out instead of taken from `node:crypto`, which would add several milliseconds to every start.
 */

import type { IncomingHttpHeaders } from "node:http";
import { DAEMON_HEADERS, SandlotError } from "@sandlot/contract";

interface Secret {
  readonly generation: number;
  readonly token: string;
}

interface Claim extends Secret {
  readonly sandboxId: string;
}

export class CredentialCheck {
  readonly sandboxId: string;
  #present: Secret;
  /** What was valid before the last rebind: told twice, a rebind answers as it did the first time. */
  #previous: Secret | null = null;

  constructor(sandboxId: string, present: Secret) {
    this.sandboxId = sandboxId;
    this.#present = present;
  }

  get generation(): number {
    return this.#present.generation;
  }

  check(headers: IncomingHttpHeaders): void {
    const claim = claimOf(headers);
    if (!this.#matches(claim, this.#present)) throw this.#stale(claim);
  }

  /** Answers whether anything changed. */
  rebind(headers: IncomingHttpHeaders, next: Secret): boolean {
    const claim = claimOf(headers);
    const isPresent = this.#matches(claim, this.#present);
    const isPrevious = this.#previous !== null && this.#matches(claim, this.#previous);
    const isRepeated = isPrevious && same(next, this.#present);
    if (!isPresent && !isRepeated) throw this.#stale(claim);
    if (isRepeated || same(next, this.#present)) return false;
    this.#previous = this.#present;
    this.#present = next;
    return true;
  }

  #matches(claim: Claim, secret: Secret): boolean {
    const id = equal(claim.sandboxId, this.sandboxId);
    return and(id, equal(String(claim.generation), String(secret.generation)), equal(claim.token, secret.token));
  }

  /** The present generation is not for whoever asks without its token. */
  #stale({ sandboxId, generation }: Claim): SandlotError {
    return new SandlotError("stale_generation", { sandboxId, generation, current: null });
  }
}

function claimOf(headers: IncomingHttpHeaders): Claim {
  const sandboxId = headers[DAEMON_HEADERS.sandboxId];
  const generation = Number(headers[DAEMON_HEADERS.generation]);
  const token = headers[DAEMON_HEADERS.token];
  if (typeof sandboxId !== "string" || !Number.isSafeInteger(generation) || typeof token !== "string")
    throw new SandlotError("unauthorized", { problem: "it must carry the sandbox's id, generation and token" });
  return { sandboxId, generation, token };
}

function same(a: Secret, b: Secret): boolean {
  return and(a.generation === b.generation ? 1 : 0, equal(a.token, b.token));
}

/** 1 or 0, after looking at every character of what is expected. */
function equal(given: string, expected: string): number {
  let difference = given.length ^ expected.length;
  for (let at = 0; at < expected.length; at++)
    difference |= given.charCodeAt(at % (given.length || 1)) ^ expected.charCodeAt(at);
  return difference === 0 ? 1 : 0;
}

function and(...parts: readonly number[]): boolean {
  return parts.reduce((all, part) => all & part, 1) === 1;
}
